// SPDX-License-Identifier: Apache-2.0
// How many cores this process has: those that it may run on, or its control group's limit of CPU
// time, whichever is less.
#pragma once

#include <string_view>

namespace starling::transport {

// Of the text of a control group's cpu.max ("150000 100000", "max 100000"; empty: no limit) and of
// the cores that the process may run on: at least 1, a part of a core counts as one.
int CoresOf(std::string_view cpu_max, int allowed);

// Of this process.
int CoresHere();

}  // namespace starling::transport

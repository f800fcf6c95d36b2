// SPDX-License-Identifier: Apache-2.0
// Which version of the controller this is: in its log and in what it calls itself to API servers.
//
// It has a folder of its own, so that a program of another version is this one file and a link: the
// tests of upgrades make one.
#pragma once

#include <string>

namespace starling::version {

std::string Current();  // such as "0.1.0"

}  // namespace starling::version

// SPDX-License-Identifier: Apache-2.0
// What the last lines of a log say to a person.
#pragma once

#include <string>
#include <string_view>

namespace starling::log {

// Lines that are no entries of ours (JSON with "msg"), as they are: a program's last words, or a
// traceback. Where there are none, the message of the newest entry, with its "why" or "error".
// Empty: nothing was said.
std::string WordsOf(std::string_view lines);

}  // namespace starling::log

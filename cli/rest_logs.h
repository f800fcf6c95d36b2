// SPDX-License-Identifier: Apache-2.0
// logs over REST: lines of a job's pods, each once, however often the connection breaks.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "cli/arguments.h"
#include "cli/session.h"

namespace starling::cli {

// Which lines were told before a connection broke: a new one tells a log from its beginning.
class HeardLines {
 public:
  void BeginAnew() { now_.clear(); }

  // Whether it is new. A pod that has taken another one's name has another first line, and then all
  // of its lines are new.
  bool Take(const std::string& pod, const std::string& line);

 private:
  struct Told {
    std::string first;
    std::size_t lines = 0;
  };
  std::map<std::string, Told> told_;
  std::map<std::string, std::size_t> now_;  // of this connection
};

// NotFound where there is neither a job nor a pod of that name.
absl::Status RestLogs(Session& session, const Arguments& arguments);

}  // namespace starling::cli

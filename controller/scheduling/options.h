// SPDX-License-Identifier: Apache-2.0
// What an administrator says about gang schedulers, for command lines.
#pragma once

#include <string>

namespace starling::scheduling {

struct Options {
  // Which gang scheduler is used: auto, none, coscheduling, volcano or native.
  std::string gang_scheduler = "auto";
  // The schedulerName of pods in a gang, where the gang scheduler does not stand in for
  // kube-scheduler; empty: the driver's own.
  std::string gang_scheduler_name = {};
};

}  // namespace starling::scheduling

// SPDX-License-Identifier: Apache-2.0
// The coordinator's command line.
//
// To add a flag: a member here, a line in options.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace starling::coordinator {

struct Options {
  std::string spec_path;  // --spec: the resolved spec; it says which kind of coordinator leads
  std::string tls_path;   // --tls: the folder of tls.crt, tls.key and ca.crt
  std::string job_uid;    // --job-uid: as certificates say it
  std::string job_name;   // --job-name
  std::string address;    // --address: this pod's numeric IP
  std::string pod_name;   // --pod-name
  std::string pod_uid;    // --pod-uid
  absl::Duration heartbeat_timeout = absl::Seconds(1);  // --heartbeat-timeout
  absl::Duration takeover_timeout = absl::Seconds(30);  // --takeover-timeout
  std::string progress_file;  // from the environment, STARLING_PROGRESS_FILE
};

// `arguments` without the program's name; `--name value` or `--name=value`. InvalidArgument names
// the flag.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);

}  // namespace starling::coordinator

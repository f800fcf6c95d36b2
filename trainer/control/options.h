// SPDX-License-Identifier: Apache-2.0
// The command line and environment of a member's program: workers and parameter servers have the
// same.
//
// To add a flag: a member here, a line in options.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/membership/types.h"

namespace starling::control {

struct Options {
  std::string spec_path;      // --spec: the resolved spec, JSON
  std::string secret_path;    // --secret: the job's data-plane key
  std::string tls_path;       // --tls: the folder of tls.crt, tls.key and ca.crt
  std::string address;        // --address: this pod's numeric IP
  std::string pod_name;       // --pod-name
  std::string pod_uid;        // --pod-uid
  std::string job_uid;        // --job-uid
  std::string job_name;       // --job-name
  std::string job_dir;        // --job-dir: results, audit, and by default checkpoints
  std::string grace = "15s";  // --grace: from SIGTERM to leaving without goodbye

  // From the environment.
  int64_t start = 0;          // STARLING_POD_START
  std::string last_exit;      // STARLING_LAST_EXIT: a file
  std::string progress_file;  // STARLING_PROGRESS_FILE
  std::string step_log;       // STARLING_STEP_LOG, with the pod's name behind it

  membership::MemberId self() const { return {.pod_uid = pod_uid, .start = start}; }
};

// `arguments` without the program's name; `--name value` or `--name=value`. InvalidArgument names
// the flag.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);
// Adds what the environment says.
absl::Status ReadEnvironment(Options& options);

// The member id as the data plane spells it.
std::string NameOf(const membership::MemberId& id);

// How the pod's process before this one ended; nothing if it is not told or cannot be read.
std::optional<membership::LastExit> ReadLastExit(const std::string& path);

}  // namespace starling::control

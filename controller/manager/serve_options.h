// SPDX-License-Identifier: Apache-2.0
// The command line of `starling-controller serve`, REST in a cluster.
//
// To add a flag: a field here and a line in serve_options.cc, from which --help comes too.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "controller/manager/options.h"
#include "controller/rest/cluster_logs.h"

namespace starling::manager {

struct ServeOptions {
  ClusterOptions cluster;  // of which only what says whose jobs, which API server, and telemetry
  RestOptions rest;        // without its port
  HistoryOptions history;  // neither URL nor file: nothing is kept
  std::vector<service::ModelPlace> models;
  log::Level log_level = log::Level::kInfo;
  std::string address = ":8443";
  // Of the namespace `secret_ns`: what replicas share. Empty: nothing, for one replica alone.
  std::string secret;
  std::string secret_ns = "starling-system";
  std::string service = "starling-api";  // whose names the certificate is for
  std::string tls_folder;                // with tls.crt and tls.key; empty: of the secret
  absl::Duration linger = absl::ZeroDuration();
  absl::Duration drain = absl::Seconds(10);
};

std::string ServeUsage();

// `arguments` without the program's name and the word `serve`. InvalidArgument: what is wrong, and
// the remedy.
absl::StatusOr<ServeOptions> ParseServeOptions(const std::vector<std::string>& arguments);

}  // namespace starling::manager

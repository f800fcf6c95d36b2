// SPDX-License-Identifier: Apache-2.0
// The controller's command line, in both of its homes: one machine, or a cluster.
//
// To add a flag: a field here and a line in options.cc, from which --help comes too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log/log.h"
#include "controller/history/retention.h"
#include "controller/runtime/lease_decision.h"
#include "controller/scheduling/options.h"

namespace starling::flags {
class App;
}

namespace starling::manager {

// The environment's variable of that name; empty if there is none.
std::string Environment(const char* name);

// Of a controller that works through an API server.
struct ClusterOptions {
  std::string kubeconfig;  // empty: $KUBECONFIG, or the service account of the pod that it runs in
  std::string context;
  std::string ns;     // whose jobs; empty: all namespaces'
  std::string image;  // of job pods whose template names none
  bool leader_elect = true;
  runtime::ElectionOptions election;                // its identity is made at start
  std::string metrics_bind_address = ":8080";       // "0": not served
  std::string health_probe_bind_address = ":8081";  // "0": not served
  double kube_api_qps = 200;                        // 0: no limit
  std::int64_t kube_api_burst = 400;
  std::int64_t concurrent_reconciles = 8;
  std::int64_t webhook_port = 0;              // 0: not served; in a pod 9443 unless told otherwise
  scheduling::Options scheduling;             // gang schedulers and queues of others
  absl::Duration resync = absl::Minutes(10);  // each job is looked at that often, come what may
};

// Of the REST service of one machine.
struct RestOptions {
  std::int64_t port = 0;  // 0: any free one
  std::int64_t connections = 4096;
  std::int64_t streams = 1500;
  // Of one caller.
  std::int64_t caller_streams = 64;
  double caller_writes = 20;  // a second; 0: no limit
  double caller_reads = 50;
};

// Of what is kept of jobs beyond their objects.
struct HistoryOptions {
  std::string url;   // postgresql://...
  std::string file;  // of SQLite, where there is no URL; empty: on one machine HOME/history.db
  history::Retention retention;
};

struct Options {
  std::string home;             // STARLING_HOME, absolute; empty: a cluster
  bool exit_when_idle = false;  // leave once there has been nothing to do for a while
  log::Level log_level = log::Level::kInfo;
  // Without a sign of life for this long a coordinator is replaced.
  absl::Duration coordinator_silence = absl::Seconds(2);
  RestOptions rest;
  HistoryOptions history;
  ClusterOptions cluster;
};

// Flags that `starling-controller serve` has too (serve_options.h).
void AddLogLevel(flags::App& app, log::Level& level);
void AddConnection(flags::App& app, ClusterOptions& cluster);
void AddRestLimits(flags::App& app, RestOptions& rest);
void AddRetention(flags::App& app, history::Retention& retention);

// The usage text, for --help.
std::string Usage();

// `arguments` without the program's name. InvalidArgument: what is wrong, and the remedy.
absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments);

}  // namespace starling::manager

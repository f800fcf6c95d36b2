// SPDX-License-Identifier: Apache-2.0
// A real API server behind KubeClient's door.
//
//   ASSIGN_OR_RETURN(ClusterConfig config, LoadKubeconfig({}, environment));
//   ASSIGN_OR_RETURN(auto client, OpenHttpKubeClient(std::move(config), {}));
//
// Unavailable is the answer whenever the server's is missing or makes no sense; a write may then
// have happened or not. Nothing is remembered between calls: no cache, no discovery.
#pragma once

#include <memory>
#include <string>

#include "common/http/http_client.h"
#include "controller/kube/cluster_config.h"
#include "controller/kube/http_watch.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/pod_logs.h"

namespace starling::kube {

struct HttpKubeClientOptions {
  http::ClientOptions transport;  // who we are comes from the cluster's configuration
  HttpWatchOptions watch;
  std::string field_manager = "starling";  // of writes other than Apply
  std::int64_t page = 500;                 // objects that a list asks for at a time
};

// Thread-safe.
class HttpKubeClient : public KubeClient, public PodLogs {
 public:
  ~HttpKubeClient() override = default;

  // The namespace of the configuration, for callers that were given none.
  virtual const std::string& default_namespace() const = 0;
};

// InvalidArgument, NotFound: the configuration is wrong. Talks to nobody yet.
absl::StatusOr<std::unique_ptr<HttpKubeClient>> OpenHttpKubeClient(ClusterConfig config,
                                                                   HttpKubeClientOptions options);

}  // namespace starling::kube

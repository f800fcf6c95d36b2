// SPDX-License-Identifier: Apache-2.0
// An HTTP client that shows an API server who we are, as a cluster's configuration says.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/http/http_client.h"
#include "controller/kube/cluster_config.h"

namespace starling::kube {

// Certificates are read for each new connection and a token's file now and then, because both may
// rotate. InvalidArgument, NotFound: the configuration is wrong, and its origin is named.
absl::StatusOr<std::unique_ptr<http::HttpClient>> OpenClusterHttp(const ClusterConfig& config,
                                                                  http::ClientOptions options);

}  // namespace starling::kube

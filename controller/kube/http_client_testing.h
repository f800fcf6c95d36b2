// SPDX-License-Identifier: Apache-2.0
// For tests: an HttpKubeClient that soon loses patience with a server whose words the test chose.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "common/http/scripted_server.h"
#include "controller/kube/http_kube_client.h"

namespace starling::kube {

using http::Conversation;
using http::ScriptedServer;
using http::TestCertificate;

inline HttpKubeClientOptions Quick() {
  HttpKubeClientOptions options;
  options.transport.timeout = absl::Seconds(2);
  options.watch.request = absl::Seconds(1);
  options.watch.grace = absl::Milliseconds(500);
  options.watch.patience = absl::Milliseconds(500);
  return options;
}

inline std::unique_ptr<HttpKubeClient> Open(const ScriptedServer& server, ClusterConfig config = {},
                                            HttpKubeClientOptions options = Quick()) {
  config.server = server.url();
  config.origin = "the test";
  auto client = OpenHttpKubeClient(std::move(config), std::move(options));
  EXPECT_TRUE(client.ok()) << client.status();
  return *std::move(client);
}

}  // namespace starling::kube

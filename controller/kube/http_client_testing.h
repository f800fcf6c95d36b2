// SPDX-License-Identifier: Apache-2.0
// For tests: an HttpKubeClient that soon loses patience with a server whose words the test chose.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "common/http/scripted_server.h"
#include "controller/kube/http_kube_client.h"
#include "controller/kube/messages.h"
#include "controller/kube/objects.h"

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

// A watch that `open` opens without a version, before a server that lists "x" of version 5 by
// `list` and stands at 9: what is present comes first, and the watch goes on after 9.
template <typename List, typename OpenWatch>
void ExpectPresentAndThenWhatComesAfter(List list, const char* stream_head, OpenWatch open) {
  std::atomic<bool> went_on = false;
  const ScriptedServer server([&](Conversation& c, int number) {
    if (number == 0) {
      list(c);
      return true;
    }
    went_on = c.request.find("resourceVersion=9 ") != std::string::npos;
    c.Say(stream_head);
    return true;
  });
  auto client = Open(server);
  const auto watch = open(*client);
  ASSERT_TRUE(watch.ok()) << watch.status();
  EXPECT_TRUE(went_on);
  const auto event = (*watch)->Next(absl::ZeroDuration());
  ASSERT_TRUE(event.ok() && *event) << event.status();
  EXPECT_EQ((*event)->type, WatchEventType::kAdded);
  EXPECT_EQ(ResourceVersionOf(*(*event)->object), "5");
}

}  // namespace starling::kube

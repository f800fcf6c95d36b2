// SPDX-License-Identifier: Apache-2.0
// One job as the REST service tells of it, as a watch.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "cli/event_stream.h"
#include "controller/kube/kube_client.h"

namespace starling::cli {

// Next() is confined to one thread; Stop() ends it within a fraction of a second.
class RestWatch final : public kube::WatchStream {
 public:
  RestWatch(http::HttpClient& http, std::string target, const std::string& version)
      : events_(http, std::move(target), version) {}

  absl::Status Start() { return events_.Start(); }
  absl::StatusOr<std::optional<kube::WatchEvent>> Next(absl::Duration timeout) override;
  void Stop() override { stopped_ = true; }

 private:
  absl::StatusOr<std::optional<kube::WatchEvent>> Take(absl::Duration timeout);
  std::optional<kube::WatchEvent> Told(const ServerEvent& event);

  EventStream events_;
  std::atomic<bool> stopped_ = false;
  std::shared_ptr<const kube::Json> last_;  // null: it has not been seen
  bool over_ = false;                       // nothing more will be told of it
};

}  // namespace starling::cli

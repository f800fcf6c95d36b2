// SPDX-License-Identifier: Apache-2.0
// Server-sent events of the REST service, over as many connections as it takes.
//
// Connections break and servers are started again; the stream then goes on behind the last event
// that had an id. Only what its reader must know reaches it: that the server has said the end, that
// it refuses, or that it has been away for longer than patience lasts.
#pragma once

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/http/http_client.h"

namespace starling::cli {

struct ServerEvent {
  std::string name;
  std::string id;  // empty: it has none
  nlohmann::json data;
};

// The text of one connection, cut anywhere, to events; by the HTML standard's rules.
class EventText {
 public:
  // Unavailable: a line that is too long, or data that is no JSON.
  absl::Status Take(std::string_view text, std::deque<ServerEvent>& events);
  // How long the server wants to be left alone after a cut, if it said so.
  std::optional<absl::Duration> retry() const { return retry_; }

 private:
  absl::Status TakeLine(std::string_view line, std::deque<ServerEvent>& events);

  std::string line_;  // the beginning of one
  ServerEvent event_;
  std::string data_;
  std::optional<absl::Duration> retry_;
};

// Confined to one thread.
class EventStream {
 public:
  // After so long without a word the server counts as away: each 15 s it says at least that it is
  // there.
  static constexpr absl::Duration kSilence = absl::Seconds(45);
  static constexpr absl::Duration kPatience = absl::Minutes(5);

  // `http` must outlive it. The target has the path and the query.
  EventStream(http::HttpClient& http, std::string target, std::string last_id = "",
              absl::Duration patience = kPatience);

  // Waits until the server has accepted the request, or says why it does not.
  absl::Status Start();

  // The next event; nothing if there was none within `timeout`. OutOfRange: the server has said
  // that there will be no more. Unavailable: out of patience.
  absl::StatusOr<std::optional<ServerEvent>> Next(absl::Duration timeout);

  // How many have been made: what a new one repeats, its reader may want to skip.
  int connections() const { return connections_; }

 private:
  void Open();
  absl::Status Read(absl::Duration timeout);
  absl::Status Broken(const absl::Status& status);

  http::HttpClient& http_;
  const std::string target_;
  const absl::Duration patience_;
  std::string last_id_;
  std::unique_ptr<http::HttpStream> stream_;  // null: there is no connection
  EventText text_;
  std::deque<ServerEvent> events_;
  absl::Time heard_;   // the last word
  absl::Time opened_;  // the connection
  absl::Time next_try_ = absl::InfinitePast();
  std::optional<absl::Duration> retry_;
  int connections_ = 0;
  int failures_ = 0;  // in a row
  bool over_ = false;
};

}  // namespace starling::cli

// SPDX-License-Identifier: Apache-2.0
// The calls from a coordinator that leads to its standby: one at a time, each with the whole of
// what it takes to lead, at once when there is a new view and ten times a second. That they come is
// also how the standby knows that it is not needed.
//
// A call that fails, or is not answered in time, is given up, and the next one goes over a fresh
// connection: the old one may be the trouble.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/types.h"

namespace grpc {
class Channel;
class ChannelCredentials;
}  // namespace grpc

namespace starling::coordinator {

class EventQueue;

struct StandbyLinkOptions {
  std::string address;                                    // host:port
  std::string peer;                                       // as its certificate must say it
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // ours
  absl::Duration every = absl::Milliseconds(100);         // between the starts of two calls
  absl::Duration patience = absl::Seconds(1);             // for an answer
};

// Confined to its event loop.
class StandbyLink {
 public:
  struct Handlers {
    // What to say now; none: there is nothing to be said yet.
    std::function<std::optional<v1alpha1::Shadow>()> make_shadow;
    std::function<void(const membership::ShadowReply&)> on_reply;
  };

  StandbyLink(std::shared_ptr<EventQueue> queue, const clock::Clock& clock,
              StandbyLinkOptions options, Handlers handlers);
  // Cancels the call that is under way; its answer comes to nothing.
  ~StandbyLink();
  StandbyLink(const StandbyLink&) = delete;
  StandbyLink& operator=(const StandbyLink&) = delete;

  const std::string& address() const { return options_.address; }
  // There is news: it is told as soon as no call is under way.
  void Hurry();
  // Calls when it is time to.
  void Tick();

 private:
  class Call;

  void OnEnd(const std::shared_ptr<Call>& call, bool answered);

  const std::shared_ptr<EventQueue> queue_;
  const clock::Clock& clock_;
  const StandbyLinkOptions options_;
  const Handlers handlers_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<Call> call_;
  absl::Time due_ = absl::InfinitePast();
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for events that come too late
};

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// The stream from the coordinator to one pod's member: dialled again and again while the pod is
// wanted, each time on a fresh channel, so that a pod that is just starting is found within
// milliseconds and no back-off of an earlier failure is inherited.
//
// Directives are whole states: only the newest is worth sending, one write at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "common/clock/clock.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/types.h"

namespace grpc {
class ChannelCredentials;
}

namespace starling::coordinator {

class EventQueue;

struct MemberLinkOptions {
  std::string address;                                    // host:port
  std::string peer;                                       // as its certificate must say it
  std::shared_ptr<grpc::ChannelCredentials> credentials;  // ours
  absl::Duration shortest_wait = absl::Milliseconds(10);  // between two dials, doubling
  absl::Duration longest_wait = absl::Milliseconds(100);
  // A stream that says nothing for so long after its dial or its last report is dialled anew.
  absl::Duration silence_timeout = absl::Seconds(5);
};

// Confined to its event loop.
class MemberLink {
 public:
  struct Handlers {
    std::function<void()> on_connected;  // before the first report of a stream
    std::function<void(const membership::Report&)> on_report;
    std::function<void()> on_disconnected;  // a stream that had reported broke
    std::function<void()> on_refused;       // nobody listens at the address
  };

  MemberLink(std::shared_ptr<EventQueue> queue, const clock::Clock& clock,
             MemberLinkOptions options, Handlers handlers);
  // Cancels the stream; its last callbacks come to nothing.
  ~MemberLink();
  MemberLink(const MemberLink&) = delete;
  MemberLink& operator=(const MemberLink&) = delete;

  const std::string& address() const { return options_.address; }
  // Sends it if it differs from what this stream was told last.
  void Tell(const membership::Directive& directive);
  // Dials when it is time to.
  void Tick();

  // What a question for a timeline gave: the answer, or why there is none.
  struct TraceHeard {
    v1alpha1::TraceAnswer answer;
    std::string why_not;  // empty: there is an answer
    absl::Time sent;
    absl::Time received;
  };
  // Asks over the present stream's connection. `heard` is called on the loop, once, also when this
  // link is gone by then.
  void Ask(const v1alpha1::TraceQuery& query, std::function<void(const TraceHeard&)> heard);

 private:
  class Stream;
  class Question;

  void Dial();
  void Probe();
  void Send();
  void OnReport(const std::shared_ptr<Stream>& stream, const membership::Report& report);
  void OnWritten(const std::shared_ptr<Stream>& stream);
  void OnEnd(const std::shared_ptr<Stream>& stream);

  const std::shared_ptr<EventQueue> queue_;
  const clock::Clock& clock_;
  const MemberLinkOptions options_;
  const Handlers handlers_;
  std::shared_ptr<Stream> stream_;
  bool reported_ = false;  // this stream has
  absl::Time heard_ = absl::InfinitePast();
  absl::Time next_dial_ = absl::InfinitePast();
  absl::Duration wait_;
  membership::Directive directive_;
  bool delivered_ = false;  // this stream knows directive_
  bool writing_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for events that come too late
};

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
// Where the coordinator makes a timeline that somebody has asked for (`starling trace`): it asks
// the members by their links, again and again, until timeline::Collector has enough, makes the file
// on a thread of its own, since that may take a tenth of a second in which members would go
// unheard, and shows it in every report until the controller does not want it any more.
//
// A coordinator that dies meanwhile loses what was recorded; its successor is asked for the same,
// and begins anew.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "common/clock/clock.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/timeline/collector.h"

namespace starling::coordinator {

class EventQueue;
class MemberLink;

// Confined to its event loop.
class TraceDesk {
 public:
  // Kubernetes takes no object above 1 MiB, and this is written in base64.
  static constexpr std::size_t kMostBytes = 700 * 1024;

  // `made`: there is something new to report.
  TraceDesk(std::shared_ptr<EventQueue> queue, const clock::Clock& clock, std::string job,
            std::function<void()> made);
  ~TraceDesk();
  TraceDesk(const TraceDesk&) = delete;
  TraceDesk& operator=(const TraceDesk&) = delete;

  // As Desired.trace_request says; empty: nothing.
  void Want(const std::string& request);
  // Whether members are to be asked.
  bool records() const { return collector_.has_value(); }
  // What was asked for is not stored yet.
  bool owes() const { return !request_.empty(); }

  // Those that can be asked, by pod UID, each with its link. `over`: the job has ended, and what
  // there is has to do.
  struct Member {
    timeline::Who who;
    MemberLink* link = nullptr;
  };
  void Tick(const std::map<std::string, Member>& members, bool over);
  void OnNews(timeline::News news);
  void Put(v1alpha1::CoordinatorReport& to) const;

 private:
  void Finish(const std::map<std::string, Member>& members, std::string because);

  const std::shared_ptr<EventQueue> queue_;
  const clock::Clock& clock_;
  const std::string job_;
  const std::function<void()> made_;
  std::string request_;
  std::optional<timeline::Collector> collector_;
  std::string packed_;  // what was made for request_; empty: not yet
  std::thread thread_;  // makes it
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace starling::coordinator

// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/trace_desk.h"

#include <utility>

#include "api/spec/trace_request.h"
#include "common/log/log.h"
#include "trainer/coordinator/event_loop.h"
#include "trainer/coordinator/member_link.h"
#include "trainer/timeline/chrome_trace.h"

namespace starling::coordinator {

TraceDesk::TraceDesk(std::shared_ptr<EventQueue> queue, const clock::Clock& clock, std::string job,
                     std::function<void()> made)
    : queue_(std::move(queue)), clock_(clock), job_(std::move(job)), made_(std::move(made)) {}

TraceDesk::~TraceDesk() {
  *alive_ = false;
  if (thread_.joinable()) thread_.join();
}

void TraceDesk::Want(const std::string& request) {
  if (request == request_) return;
  request_ = request;
  packed_.clear();
  collector_.reset();
  if (request.empty()) return;
  const spec::TraceWish wish = spec::ReadTraceRequest(request);
  timeline::Collector::Options options;
  options.job = job_;
  options.request = request;
  options.steps = wish.steps;
  options.most = wish.time;
  collector_.emplace(std::move(options), clock_.Now(), clock_.WallNow());
  log::Info("records a timeline", {{"steps", wish.steps}, {"request", request}});
}

void TraceDesk::OnNews(timeline::News news) {
  if (collector_) collector_->OnNews(std::move(news));
}

void TraceDesk::Tick(const std::map<std::string, Member>& members, bool over) {
  if (!collector_) return;
  std::map<std::string, timeline::Who> known;
  for (const auto& [uid, member] : members) known[uid] = member.who;
  collector_->SetMembers(std::move(known));
  const absl::Time now = clock_.Now();
  std::string because = collector_->Ended(now);
  if (because.empty() && over) because = "the job has ended";
  if (!because.empty()) return Finish(members, std::move(because));
  for (const auto& [uid, member] : members) {
    const std::optional<v1alpha1::TraceQuery> question = collector_->QuestionFor(uid, now);
    if (!question) continue;
    const auto heard = [this, alive = alive_, request = request_,
                        uid = uid](const MemberLink::TraceHeard& said) {
      if (!*alive || !collector_ || request != request_) return;
      if (said.why_not.empty()) {
        collector_->OnAnswer(uid, said.answer, said.sent, said.received);
      } else {
        collector_->OnFailure(uid, said.why_not);
      }
    };
    member.link->Ask(*question, heard);
  }
}

void TraceDesk::Finish(const std::map<std::string, Member>& members, std::string because) {
  const v1alpha1::TraceQuery farewell = collector_->Farewell();
  for (const auto& [uid, member] : members) {
    member.link->Ask(farewell, [](const MemberLink::TraceHeard&) {});
  }
  log::Info("the timeline is recorded", {{"because", because}});
  timeline::Collected collected = collector_->Take(clock_.Now(), std::move(because));
  collector_.reset();
  if (thread_.joinable()) thread_.join();  // an earlier request's: it ends by itself
  queue_->Hold();
  thread_ = std::thread([this, queue = queue_, alive = alive_, request = request_,
                         collected = std::move(collected)]() mutable {
    std::string packed = timeline::PackedChromeTrace(std::move(collected), kMostBytes);
    queue->PostLast([this, alive, request, packed = std::move(packed)]() mutable {
      if (!*alive || request != request_) return;
      packed_ = std::move(packed);
      made_();
    });
  });
}

void TraceDesk::Put(v1alpha1::CoordinatorReport& to) const {
  if (packed_.empty()) return;
  to.set_trace_request(request_);
  to.set_trace(packed_);
}

}  // namespace starling::coordinator

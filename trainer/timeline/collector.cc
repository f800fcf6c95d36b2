// SPDX-License-Identifier: Apache-2.0
#include "trainer/timeline/collector.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::timeline {
namespace {

constexpr std::size_t kMostNews = 1'000;
constexpr std::size_t kMostSeries = 1'024;

bool SameProcess(const v1alpha1::MemberId& a, const v1alpha1::MemberId& b) {
  return a.pod_uid() == b.pod_uid() && a.start() == b.start();
}

void Compare(Series& series, std::int64_t their_nanos, absl::Time sent, absl::Time received) {
  const absl::Duration half = (received - sent) / 2;
  if (half >= series.uncertainty) return;
  series.uncertainty = half;
  const absl::Duration offset = absl::FromUnixNanos(their_nanos) - (sent + half);
  series.offset = absl::AbsDuration(offset) <= half ? absl::ZeroDuration() : offset;
}

void Count(const v1alpha1::TraceEvent& event, Series& series) {
  if (event.track() != v1alpha1::TraceEvent::STEP) return;
  if (series.first_step == 0) series.first_step = event.step();
  series.last_step = std::max(series.last_step, event.step());
  ++series.steps;
}

}  // namespace

Collector::Collector(Options options, absl::Time now, absl::Time wall_now)
    : options_(std::move(options)), began_(now), wall_began_(wall_now) {}

void Collector::SetMembers(std::map<std::string, Who> members) {
  std::erase_if(asked_, [&](const auto& one) { return !members.contains(one.first); });
  for (auto& [uid, who] : members) {
    const auto [asked, added] = asked_.try_emplace(uid);
    if (added) asked->second.next = asked->second.answered = absl::InfinitePast();
    asked->second.who = std::move(who);
  }
}

std::optional<v1alpha1::TraceQuery> Collector::QuestionFor(const std::string& pod_uid,
                                                           absl::Time now) {
  const auto found = asked_.find(pod_uid);
  if (found == asked_.end() || found->second.open || now < found->second.next) return std::nullopt;
  Asked& asked = found->second;
  if (asked.answered == absl::InfinitePast()) asked.answered = now;  // its patience begins
  asked.open = true;
  asked.next = now + options_.every;
  v1alpha1::TraceQuery query;
  query.set_request(options_.request);
  query.set_after(asked.after);
  return query;
}

Series& Collector::SeriesOf(Asked& asked, const v1alpha1::TraceAnswer& answer) {
  if (asked.series && SameProcess(series_[*asked.series].process, answer.id())) {
    return series_[*asked.series];
  }
  asked.after = 0;
  // A link that broke for a moment goes on where it was.
  const auto known = std::ranges::find_if(
      series_, [&](const Series& series) { return SameProcess(series.process, answer.id()); });
  asked.series = static_cast<std::size_t>(known - series_.begin());
  if (known == series_.end()) {
    series_.push_back({});
    series_.back().process = answer.id();
    series_.back().who = asked.who;
  }
  return series_[*asked.series];
}

void Collector::OnAnswer(const std::string& pod_uid, const v1alpha1::TraceAnswer& answer,
                         absl::Time sent, absl::Time received) {
  const auto found = asked_.find(pod_uid);
  if (found == asked_.end() || answer.id().pod_uid() != pod_uid) return;
  Asked& asked = found->second;
  asked.open = false;
  asked.answered = received;
  asked.ever = true;
  asked.failed.clear();
  if (series_.size() >= kMostSeries) return;
  Series& series = SeriesOf(asked, answer);
  series.lockstep = answer.lockstep();
  series.left_out = std::max(series.left_out, answer.left_out());
  Compare(series, answer.now_nanos(), sent, received);
  // An answer that was repeated holds what is here already.
  std::uint64_t number = answer.first();
  for (const v1alpha1::TraceEvent& event : answer.events()) {
    if (number++ < asked.after) continue;
    if (events_ < options_.most_events) {
      Count(event, series);
      series.events.push_back(event);
      ++events_;
    }
    asked.after = number;
  }
  // There is more: it is fetched at once.
  if (answer.events_size() > 1'000) asked.next = received;
}

void Collector::OnFailure(const std::string& pod_uid, const std::string& why) {
  const auto found = asked_.find(pod_uid);
  if (found == asked_.end()) return;
  found->second.open = false;
  found->second.failed = why;
}

void Collector::OnNews(News news) {
  if (news_.size() < kMostNews) news_.push_back(std::move(news));
}

bool Collector::IsSilent(const Asked& asked, absl::Time now) const {
  return asked.answered != absl::InfinitePast() && now - asked.answered > options_.patience;
}

// In lockstep all are to make the steps that all of those who were there at first have made from
// begin to end. Nothing: that is not known yet.
std::optional<std::int64_t> Collector::LastWanted(absl::Time now) {
  if (last_wanted_) return last_wanted_;
  std::int64_t first = 0;
  for (const auto& [uid, asked] : asked_) {
    if (!asked.who.works || IsSilent(asked, now)) continue;
    if (!asked.series || series_[*asked.series].steps == 0) return std::nullopt;
    first = std::max(first, series_[*asked.series].first_step);
  }
  if (first > 0) last_wanted_ = first + options_.steps - 1;
  return last_wanted_;
}

bool Collector::HasEnough(const Series& series, std::int64_t last) const {
  return series.lockstep ? series.last_step >= last : series.steps >= options_.steps;
}

std::string Collector::Ended(absl::Time now) {
  if (now - began_ >= options_.most) {
    return absl::StrCat("its time was over (", absl::FormatDuration(options_.most), ")");
  }
  if (events_ >= options_.most_events) {
    return absl::StrCat("it was full (", options_.most_events, " events)");
  }
  const std::optional<std::int64_t> last = LastWanted(now);
  if (!last) return "";
  bool any = false;
  for (const auto& [uid, asked] : asked_) {
    if (!asked.who.works || IsSilent(asked, now) || !asked.series) continue;
    const Series& series = series_[*asked.series];
    if (series.steps == 0) continue;  // it has come, and does not work yet
    if (!HasEnough(series, *last)) return "";
    any = true;
  }
  return any ? absl::StrCat("all workers had made ", options_.steps, " steps") : "";
}

Collected Collector::Take(absl::Time now, std::string because) {
  Collected collected{.job = options_.job,
                      .request = options_.request,
                      .began = began_,
                      .wall_began = wall_began_,
                      .ended = now,
                      .ended_because = std::move(because),
                      .series = std::move(series_),
                      .news = std::move(news_),
                      .silent = {}};
  for (const auto& [uid, asked] : asked_) {
    if (asked.ever && !IsSilent(asked, now)) continue;
    collected.silent[asked.who.pod] = asked.failed.empty() ? "it did not answer" : asked.failed;
  }
  std::ranges::sort(collected.series, [](const Series& a, const Series& b) {
    return std::tuple(!a.who.works, a.who.pod, a.process.start()) <
           std::tuple(!b.who.works, b.who.pod, b.process.start());
  });
  series_.clear();
  asked_.clear();
  return collected;
}

v1alpha1::TraceQuery Collector::Farewell() const {
  v1alpha1::TraceQuery query;
  query.set_request(options_.request);
  query.set_over(true);
  return query;
}

}  // namespace starling::timeline

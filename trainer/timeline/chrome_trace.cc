// SPDX-License-Identifier: Apache-2.0
#include "trainer/timeline/chrome_trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/gzip/gzip.h"
#include "common/json/json.h"

namespace starling::timeline {
namespace {

using Json = nlohmann::json;
using v1alpha1::TraceEvent;

constexpr int kCoordinator = 1;  // its number among the processes
constexpr int kFirstMember = 2;

struct TrackName {
  TraceEvent::Track track;
  const char* name;
};
constexpr TrackName kTracks[] = {{TraceEvent::ACTIVITY, "activity"},
                                 {TraceEvent::STEP, "steps"},
                                 {TraceEvent::EXCHANGE, "exchange"},
                                 {TraceEvent::CHECKPOINT, "checkpoints"},
                                 {TraceEvent::MEMBERSHIP, "views"}};

std::int64_t Nanos(absl::Time time) { return absl::ToUnixNanos(time); }
double Micros(std::int64_t nanos) { return static_cast<double>(nanos) / 1000; }
double Micros(absl::Duration duration) { return Micros(absl::ToInt64Nanoseconds(duration)); }

// "exchange" and what of it was waiting for others, which is its first part.
void DivideWaiting(std::vector<TraceEvent>& events) {
  std::map<std::int64_t, std::int64_t> waited;  // until, by the begin
  for (const TraceEvent& event : events) {
    if (event.track() == TraceEvent::WAITING) waited[event.begin_nanos()] = event.end_nanos();
  }
  std::vector<TraceEvent> divided;
  divided.reserve(events.size());
  for (TraceEvent& event : events) {
    if (event.track() == TraceEvent::WAITING) continue;
    const auto found = waited.find(event.begin_nanos());
    if (event.track() == TraceEvent::ACTIVITY && found != waited.end()) {
      TraceEvent& first = divided.emplace_back(event);
      first.set_name("waiting");
      first.set_end_nanos(std::min(found->second, event.end_nanos()));
      event.set_begin_nanos(first.end_nanos());
    }
    divided.push_back(std::move(event));
  }
  events = std::move(divided);
}

void PutName(const char* what, int process, int thread, const std::string& name, Json& to) {
  to.push_back(
      {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}});
}

Json DetailsOf(const TraceEvent& event) {
  Json details = Json::object();
  if (event.step() != 0) details["step"] = event.step();
  if (event.track() == TraceEvent::STEP) details["epoch"] = event.epoch();
  if (event.track() == TraceEvent::MEMBERSHIP) details["view"] = event.view();
  if (event.track() != TraceEvent::EXCHANGE) return details;
  details["bucket"] = event.bucket();
  details["denseBytes"] = event.dense_bytes();
  if (event.begin_nanos() == event.end_nanos()) return details;
  details["bytes"] = event.bytes();
  if (!event.algorithm().empty()) details["algorithm"] = event.algorithm();
  if (!event.transport().empty()) details["transport"] = event.transport();
  return details;
}

// One member's events, by our clock, from `origin` on.
void PutSeries(const Series& series, int process, std::int64_t origin, Json& to) {
  std::string name = series.who.pod;
  if (series.process.start() > 1) absl::StrAppend(&name, ", process ", series.process.start());
  PutName("process_name", process, 0, name, to);
  to.push_back({{"ph", "M"},
                {"name", "process_sort_index"},
                {"pid", process},
                {"tid", 0},
                {"args", {{"sort_index", process}}}});
  for (const TrackName& track : kTracks) {
    PutName("thread_name", process, track.track + 1, track.name, to);
  }
  std::vector<TraceEvent> events = series.events;
  DivideWaiting(events);
  std::ranges::stable_sort(events, {}, &TraceEvent::begin_nanos);
  const std::int64_t ahead = absl::ToInt64Nanoseconds(series.offset);
  for (const TraceEvent& event : events) {
    const std::int64_t begin = event.begin_nanos() - ahead - origin;
    Json put = {{"name", event.name()},
                {"pid", process},
                {"tid", event.track() + 1},
                {"ts", Micros(begin)},
                {"args", DetailsOf(event)}};
    if (event.end_nanos() > event.begin_nanos()) {
      put["ph"] = "X";
      put["dur"] = Micros(event.end_nanos() - event.begin_nanos());
    } else {
      put["ph"] = "i";
      put["s"] = "t";
    }
    to.push_back(std::move(put));
  }
}

std::int64_t OriginOf(const Collected& collected) {
  std::int64_t origin = Nanos(collected.began);
  for (const Series& series : collected.series) {
    const std::int64_t ahead = absl::ToInt64Nanoseconds(series.offset);
    for (const TraceEvent& event : series.events) {
      origin = std::min(origin, event.begin_nanos() - ahead);
    }
  }
  for (const News& news : collected.news) origin = std::min(origin, Nanos(news.time));
  return origin;
}

Json MemberOf(const Series& series) {
  Json member = {{"pod", series.who.pod},
                 {"process", series.process.start()},
                 {"events", series.events.size()},
                 {"leftOut", series.left_out},
                 {"steps", series.steps}};
  if (!series.who.node.empty()) member["node"] = series.who.node;
  if (series.steps > 0) {
    member["firstStep"] = series.first_step;
    member["lastStep"] = series.last_step;
  }
  if (series.uncertainty != absl::InfiniteDuration()) {
    member["clockOffsetMicros"] = Micros(series.offset);
    member["clockUncertaintyMicros"] = Micros(series.uncertainty);
  }
  return member;
}

Json About(const Collected& collected, std::int64_t origin) {
  Json about = {{"job", collected.job},
                {"request", collected.request},
                {"recordedAt", absl::FormatTime("%Y-%m-%d%ET%H:%M:%E3SZ", collected.wall_began,
                                                absl::UTCTimeZone())},
                {"seconds", absl::ToDoubleSeconds(collected.ended - collected.began)},
                {"ended", collected.ended_because},
                {"beginMicros", Micros(Nanos(collected.began) - origin)},
                {"members", Json::array()},
                {"silent", Json::object()}};
  for (const Series& series : collected.series) about["members"].push_back(MemberOf(series));
  for (const auto& [pod, why] : collected.silent) about["silent"][pod] = why;
  return about;
}

}  // namespace

std::string ChromeTrace(const Collected& collected) {
  const std::int64_t origin = OriginOf(collected);
  Json events = Json::array();
  PutName("process_name", kCoordinator, 0, "coordinator", events);
  PutName("thread_name", kCoordinator, 1, "views and incidents", events);
  for (const News& news : collected.news) {
    events.push_back({{"ph", "i"},
                      {"s", "g"},
                      {"name", news.name},
                      {"pid", kCoordinator},
                      {"tid", 1},
                      {"ts", Micros(Nanos(news.time) - origin)},
                      {"args", news.details}});
  }
  int process = kFirstMember;
  for (const Series& series : collected.series) PutSeries(series, process++, origin, events);
  return json::Dump({{"displayTimeUnit", "ms"},
                     {"otherData", About(collected, origin)},
                     {"traceEvents", std::move(events)}});
}

std::string PackedChromeTrace(Collected collected, std::size_t most_bytes) {
  while (true) {
    std::string packed = gzip::Pack(ChromeTrace(collected));
    if (packed.size() <= most_bytes) return packed;
    bool shortened = false;
    // Each time takes a while, so that it is not to be many.
    const double fits = 0.9 * static_cast<double>(most_bytes) / static_cast<double>(packed.size());
    for (Series& series : collected.series) {
      const auto kept = static_cast<std::size_t>(fits * static_cast<double>(series.events.size()));
      shortened = shortened || kept < series.events.size();
      series.left_out += series.events.size() - kept;
      series.events.resize(kept);
    }
    if (!shortened) return packed;
  }
}

}  // namespace starling::timeline

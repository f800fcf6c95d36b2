// SPDX-License-Identifier: Apache-2.0
// The coordinator's side of `starling trace`: whom to ask for what, when there is enough, and what
// it all gives. A plain machine: the shell asks, and tells it what came and when.
//
// A member that does not answer is named in the result with the reason, and costs nothing else:
// nobody waits for it.
//
// Clocks: each question is a message there and back, so it bounds how far the member's clock is
// from ours: the answer's time lies between the two of ours. The narrowest such bound counts. Where
// it holds zero, which it does on one machine, the clocks are taken as one; else its middle is
// taken, and half its width is told as the uncertainty.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "starling/v1alpha1/membership.pb.h"

namespace starling::timeline {

// A member as the coordinator knows it.
struct Who {
  std::string pod;  // its name
  std::string node;
  bool works = true;  // makes steps: a worker

  friend bool operator==(const Who&, const Who&) = default;
};

// What one process has told.
struct Series {
  v1alpha1::MemberId process;
  Who who;
  std::vector<v1alpha1::TraceEvent> events;  // in the order in which they ended
  std::uint64_t left_out = 0;
  bool lockstep = false;
  std::int64_t first_step = 0;  // whole ones; 0: none yet
  std::int64_t last_step = 0;
  std::int64_t steps = 0;
  // Of its clock, ahead of ours, and how far that may be wrong.
  absl::Duration offset;
  absl::Duration uncertainty = absl::InfiniteDuration();
};

// Something that the coordinator itself knows of: a view, an incident.
struct News {
  absl::Time time;  // by the coordinator's monotonic clock
  std::string name;
  std::map<std::string, std::string> details = {};

  friend bool operator==(const News&, const News&) = default;
};

// What a trace is made of.
struct Collected {
  std::string job;
  std::string request;
  absl::Time began;       // by the coordinator's monotonic clock
  absl::Time wall_began;  // the same moment for people
  absl::Time ended;
  std::string ended_because;
  std::vector<Series> series;
  std::vector<News> news;
  std::map<std::string, std::string> silent;  // why, by pod, of those without any answer at last
};

// Thread-compatible.
class Collector {
 public:
  struct Options {
    std::string job;
    std::string request;
    std::int64_t steps = 50;                         // of each worker
    absl::Duration most = absl::Seconds(30);         // then whatever there is
    absl::Duration every = absl::Milliseconds(100);  // questions to one member
    absl::Duration patience = absl::Seconds(2);      // then a member is silent
    std::size_t most_events = 60'000;                // of all
  };
  Collector(Options options, absl::Time now, absl::Time wall_now);

  // Those that can be asked, by pod UID. Others are not waited for.
  void SetMembers(std::map<std::string, Who> members);
  // What to ask this one now; nothing: not now.
  std::optional<v1alpha1::TraceQuery> QuestionFor(const std::string& pod_uid, absl::Time now);
  // To a question that left at `sent`.
  void OnAnswer(const std::string& pod_uid, const v1alpha1::TraceAnswer& answer, absl::Time sent,
                absl::Time received);
  void OnFailure(const std::string& pod_uid, const std::string& why);
  void OnNews(News news);

  // Why it is over; empty: it is not.
  std::string Ended(absl::Time now);
  // When it is over. `because`: as Ended() says, or another reason.
  Collected Take(absl::Time now, std::string because);
  // To those that may still record.
  v1alpha1::TraceQuery Farewell() const;

 private:
  struct Asked {
    Who who;
    absl::Time next;                    // question
    bool open = false;                  // one is under way
    absl::Time answered;                // last
    bool ever = false;                  // answered
    std::string failed;                 // why its last question was not answered
    std::optional<std::size_t> series;  // of its present process, in series_
    std::uint64_t after = 0;
  };
  Series& SeriesOf(Asked& asked, const v1alpha1::TraceAnswer& answer);
  bool IsSilent(const Asked& asked, absl::Time now) const;
  std::optional<std::int64_t> LastWanted(absl::Time now);
  bool HasEnough(const Series& series, std::int64_t last) const;

  const Options options_;
  const absl::Time began_;
  const absl::Time wall_began_;
  std::map<std::string, Asked> asked_;  // by pod UID
  std::vector<Series> series_;
  std::vector<News> news_;
  std::size_t events_ = 0;
  std::optional<std::int64_t> last_wanted_;  // in lockstep: the step that all are to reach
};

}  // namespace starling::timeline

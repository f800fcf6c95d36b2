// SPDX-License-Identifier: Apache-2.0
#include "cli/story.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/spec/contract.h"
#include "cli/format.h"

namespace starling::cli {
namespace {

constexpr absl::Duration kProgressEvery = absl::Seconds(5);
constexpr absl::Duration kEpochEvery = absl::Seconds(1);
// One incident may be reported twice with times that differ by up to so much.
constexpr double kSameIncident = 15.0;
constexpr std::size_t kMostTold = 256;

double TimeOf(const v1alpha1::Incident& incident) {
  return static_cast<double>(incident.time().seconds()) + 1e-9 * incident.time().nanos();
}

bool CostIsKnown(const v1alpha1::Incident& incident) { return incident.has_recovery_seconds(); }

std::string ConditionMessage(const v1alpha1::TrainingJobStatus& status, std::string_view type) {
  for (const v1alpha1::Condition& condition : status.conditions()) {
    if (condition.type() != type) continue;
    return condition.message().empty() ? condition.reason() : condition.message();
  }
  return "";
}

std::string Metrics(const v1alpha1::TrainingJobStatus& status) {
  std::vector<std::string> parts;
  const v1alpha1::Progress& progress = status.progress();
  if (progress.has_loss()) parts.push_back(absl::StrCat("loss ", Significant(progress.loss())));
  std::vector<std::pair<std::string, double>> metrics(progress.metrics().begin(),
                                                      progress.metrics().end());
  std::sort(metrics.begin(), metrics.end());
  for (const auto& [name, value] : metrics) {
    // Bytes are for who looks closely: they stand in the status.
    if (name == "loss" || absl::StartsWith(name, "exchange/")) continue;
    parts.push_back(absl::StrCat(name, " ", Significant(value)));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string WhatHappened(const v1alpha1::Incident& incident) {
  const std::string who = incident.pod().empty() ? "the job" : incident.pod();
  if (!incident.message().empty()) {
    const std::string message = Printable(incident.message());
    const bool named = message.find(incident.pod()) != std::string::npos;
    return named ? message : absl::StrCat(who, ": ", message);
  }
  if (incident.signal() > 0) {
    return absl::StrCat(who, " was killed by signal ", incident.signal());
  }
  return absl::StrCat(who, ": ", incident.reason());
}

std::string WhatItCost(const v1alpha1::Incident& incident) {
  std::vector<std::string> parts;
  if (incident.has_detection_seconds()) {
    parts.push_back(absl::StrCat("noticed after ", Seconds(incident.detection_seconds())));
  }
  if (incident.has_resumed_step()) {
    parts.push_back(absl::StrCat("training went on from step ", incident.resumed_step()));
  } else if (incident.has_recovery_seconds()) {
    parts.push_back(absl::StrCat("training went on after ", Seconds(incident.recovery_seconds())));
  }
  if (incident.has_repeated_steps()) {
    parts.push_back(absl::StrCat(Count(incident.repeated_steps(), "step", "steps"), " repeated"));
  }
  return absl::StrJoin(parts, ", ");
}

Story::Reported* Story::Find(const v1alpha1::Incident& incident) {
  Reported* nearest = nullptr;
  double distance = kSameIncident;
  for (Reported& told : reported_) {
    if (told.incident.pod() != incident.pod() || told.incident.reason() != incident.reason()) {
      continue;
    }
    const double apart = std::abs(TimeOf(told.incident) - TimeOf(incident));
    if (apart < distance) {
      nearest = &told;
      distance = apart;
    }
  }
  return nearest;
}

void Story::TellIncidents(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines) {
  for (const v1alpha1::Incident& incident : status.incidents()) {
    Reported* told = Find(incident);
    if (told == nullptr) {
      const bool cost = CostIsKnown(incident);
      const std::string price = WhatItCost(incident);
      lines.push_back(
          {Style::kRed, absl::StrCat(WhatHappened(incident), price.empty() ? "" : ": ", price)});
      reported_.push_back({incident, cost});
      if (reported_.size() > kMostTold) reported_.erase(reported_.begin());
      continue;
    }
    told->incident = incident;
    if (told->cost || !CostIsKnown(incident)) continue;
    told->cost = true;
    lines.push_back(
        {Style::kGreen, absl::StrCat(incident.pod().empty() ? "the job" : incident.pod(), ": ",
                                     WhatItCost(incident))});
  }
}

void Story::TellState(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines) {
  if (status.state() == state_ || status.state().empty()) return;
  const std::string before = std::exchange(state_, status.state());
  if (state_ == "Pending") {
    lines.push_back({Style::kDim, "waiting for the workers"});
  } else if (state_ == "Running") {
    lines.push_back({Style::kPlain, before == "Restarting" ? "training goes on" : "training"});
  } else if (state_ == "Restarting") {
    lines.push_back({Style::kYellow, "training has stopped and is brought back"});
  } else if (state_ == "Suspended") {
    lines.push_back({Style::kYellow, "suspended"});
  } else if (state_ == "Failed") {
    lines.push_back({Style::kRed, absl::StrCat("failed: ", ConditionMessage(status, "Failed"))});
  }
}

void Story::TellWorkers(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines) {
  const std::int64_t now = status.progress().workers();
  if (!status.progress().has_workers() || now == workers_) return;
  const std::int64_t before = std::exchange(workers_, now);
  if (before == 0 || now == 0) return;
  lines.push_back({Style::kDim, absl::StrCat("now with ", Count(now, "worker", "workers"))});
}

void Story::TellServers(const v1alpha1::TrainingJobStatus& status, std::vector<Line>& lines) {
  const auto servers = status.replica_statuses().find("parameterServer");
  if (servers == status.replica_statuses().end() || servers->second.ready() == servers_) return;
  const std::int64_t before = std::exchange(servers_, servers->second.ready());
  if (before == 0 || servers_ == 0 || state_ != "Running") return;
  lines.push_back({Style::kDim, absl::StrCat("now with ", Count(servers_, "parameter server",
                                                                "parameter servers"))});
}

void Story::TellEpoch(const v1alpha1::TrainingJobStatus& status, absl::Time now,
                      std::vector<Line>& lines) {
  const v1alpha1::Progress& progress = status.progress();
  if (progress.step() == 0 || progress.epoch() <= epoch_ || now - last_epoch_ < kEpochEvery) return;
  epoch_ = progress.epoch();
  last_epoch_ = now;
  lines.push_back({Style::kPlain, absl::StrCat("epoch ", epoch_, ", step ", progress.step(), ": ",
                                               Metrics(status))});
  last_progress_ = now;
  last_step_ = progress.step();
}

void Story::Begin(const v1alpha1::TrainingJobStatus& status) {
  for (const v1alpha1::Incident& incident : status.incidents())
    reported_.push_back({incident, true});
}

std::vector<Line> Story::Tell(const v1alpha1::TrainingJobStatus& status, absl::Time now) {
  std::vector<Line> lines;
  TellIncidents(status, lines);
  TellState(status, lines);
  TellWorkers(status, lines);
  TellServers(status, lines);
  TellEpoch(status, now, lines);
  return lines;
}

std::vector<Line> Story::TellProgress(const v1alpha1::TrainingJobStatus& status, absl::Time now) {
  const v1alpha1::Progress& progress = status.progress();
  if (progress.step() == 0 || progress.step() == last_step_ ||
      now - last_progress_ < kProgressEvery)
    return {};
  last_step_ = progress.step();
  last_progress_ = now;
  std::string text = absl::StrCat("step ", progress.step());
  if (progress.total_steps() > 0) absl::StrAppend(&text, " of ", progress.total_steps());
  const std::string metrics = Metrics(status);
  if (!metrics.empty()) absl::StrAppend(&text, ": ", metrics);
  return {{Style::kDim, text}};
}

}  // namespace starling::cli

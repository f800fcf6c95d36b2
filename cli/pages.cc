// SPDX-License-Identifier: Apache-2.0
#include "cli/pages.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "api/spec/uris.h"
#include "cli/format.h"
#include "cli/story.h"
#include "controller/history/record.h"
#include "controller/kube/objects.h"
#include "controller/resources/names.h"

namespace starling::cli {
namespace {

using kube::Json;
using Row = std::vector<std::string>;
using Rows = std::vector<Row>;

constexpr std::ptrdiff_t kAgeColumn = 7;  // of a job's row
// The annotation in which a cluster's webhook notes who made a job.
constexpr char kCreatedBy[] = "starling.dev/created-by";

int Columns(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U;
  }));
}

std::string OrDash(std::string text) { return text.empty() ? "-" : std::move(text); }

std::string AgeOf(const Json& object, absl::Time now) {
  const auto created = kube::CreationTimeOf(object);
  return created ? Age(now - *created) : "-";
}

std::string NumberAt(const Json& object, std::string_view pointer) {
  const Json& value = kube::At(object, pointer);
  if (value.is_number_integer()) return absl::StrCat(value.get<std::int64_t>());
  return value.is_number() ? Significant(value.get<double>()) : "";
}

std::string Accuracy(const Json& job) {
  const std::string result = NumberAt(job, "/status/result/metrics/validation~1accuracy");
  return result.empty() ? NumberAt(job, "/status/progress/metrics/validation~1accuracy") : result;
}

Row WithNamespace(bool with, const std::string& ns, Row row) {
  if (with) row.insert(row.begin(), ns);
  return row;
}

// Of a past job: when it was seen to be gone; empty: it is there.
std::string DeletedAt(const Json& job) { return kube::AnnotationOf(job, history::kDeletedAt); }

std::string StateOf(const Json& job) {
  if (kube::IsBeingDeleted(job) && DeletedAt(job).empty()) return "Terminating";
  const std::string state = kube::StringAt(job, "/status/state");
  return state.empty() ? "Pending" : state;
}

// Ready and wanted, such as 1/2.
std::string SizeOf(const Json& job, const std::string& role) {
  const std::string wanted = NumberAt(job, absl::StrCat("/spec/replicaSpecs/", role, "/replicas"));
  const std::string ready = NumberAt(job, absl::StrCat("/status/replicaStatuses/", role, "/ready"));
  return absl::StrCat(ready.empty() ? "0" : ready, "/", wanted.empty() ? "1" : wanted);
}

// Empty: the job has none. A job that does not say how many it wants has one for each copy.
std::string ServersOf(const Json& job) {
  if (!kube::At(job, "/spec/exchange/parameterServer").is_object()) return "";
  if (!NumberAt(job, "/spec/replicaSpecs/parameterServer/replicas").empty()) {
    return SizeOf(job, "parameterServer");
  }
  const std::string ready = NumberAt(job, "/status/replicaStatuses/parameterServer/ready");
  return absl::StrCat(ready.empty() ? "0" : ready, "/",
                      ToMessage(job).spec().replica_specs().parameter_server().replicas());
}

Row JobRow(const Json& job, bool wide, absl::Time now) {
  Row row = {kube::NameOf(job),
             StateOf(job),
             SizeOf(job, "worker"),
             OrDash(NumberAt(job, "/status/progress/epoch")),
             OrDash(NumberAt(job, "/status/progress/step")),
             OrDash(NumberAt(job, "/status/progress/loss")),
             OrDash(Accuracy(job)),
             AgeOf(job, now)};
  if (wide) {
    row.push_back(OrDash(ServersOf(job)));
    row.push_back(OrDash(NumberAt(job, "/status/progress/samplesPerSecond")));
    row.push_back(OrDash(NumberAt(job, "/status/restarts")));
    row.push_back(OrDash(kube::StringAt(job, "/status/progress/estimatedRemaining")));
    row.push_back(OrDash(kube::StringAt(job, "/status/result/model/uri")));
  }
  return row;
}

// What kubectl shows as STATUS: the phase, or why it is not what it seems.
std::string PodStatus(const Json& pod) {
  const std::string phase = kube::StringAt(pod, "/status/phase");
  const Json& state = kube::At(pod, "/status/containerStatuses/0/state");
  const bool ended = phase == "Succeeded" || phase == "Failed";
  if (kube::IsBeingDeleted(pod) && !ended) return "Terminating";
  for (const char* why : {"/waiting/reason", "/terminated/reason"}) {
    std::string reason = kube::StringAt(state, why);
    if (!reason.empty()) return reason;
  }
  const std::string reason = kube::StringAt(pod, "/status/reason");
  return reason.empty() ? OrDash(phase) : reason;
}

std::string PodExit(const Json& pod) {
  const Json& ended = kube::At(pod, "/status/containerStatuses/0/state/terminated");
  if (ended.is_null()) return "-";
  const std::int64_t signal = kube::IntAt(ended, "/signal");
  if (signal > 0) return absl::StrCat("signal ", signal);
  return absl::StrCat("code ", kube::IntAt(ended, "/exitCode"));
}

Row PodRow(const Json& pod, bool wide, absl::Time now) {
  Row row = {kube::NameOf(pod),
             PodStatus(pod),
             OrDash(kube::LabelOf(pod, resources::kRoleLabel)),
             OrDash(kube::StringAt(pod, "/status/podIP")),
             OrDash(kube::AnnotationOf(pod, "starling.dev/pid")),
             AgeOf(pod, now)};
  if (wide) {
    row.push_back(PodExit(pod));
    row.push_back(OrDash(kube::StringAt(pod, "/spec/nodeName")));
    row.push_back(kube::UidOf(pod));
  }
  return row;
}

absl::Time LastSeen(const Json& event) {
  for (const char* field :
       {"/series/lastObservedTime", "/eventTime", "/metadata/creationTimestamp"}) {
    if (const auto time = kube::ParseTimestamp(kube::StringAt(event, field))) return *time;
  }
  return absl::UnixEpoch();
}

std::vector<Json> ByTime(std::vector<Json> events) {
  std::stable_sort(events.begin(), events.end(),
                   [](const Json& a, const Json& b) { return LastSeen(a) < LastSeen(b); });
  return events;
}

Row EventRow(const Json& event, bool wide, absl::Time now) {
  const std::int64_t count = kube::IntAt(event, "/series/count", 1);
  Row row = {Age(now - LastSeen(event)), kube::StringAt(event, "/type"),
             kube::StringAt(event, "/reason"),
             absl::StrCat(kube::StringAt(event, "/regarding/kind"), "/",
                          kube::StringAt(event, "/regarding/name"))};
  if (wide) row.push_back(kube::StringAt(event, "/reportingController"));
  row.push_back(absl::StrCat(Printable(kube::StringAt(event, "/note")),
                             count > 1 ? absl::StrCat(" (", count, " times)") : ""));
  return row;
}

// Lines of "name   value", the values beneath one another.
std::string Pairs(const Rows& rows, std::string_view indent) {
  int width = 0;
  for (const Row& row : rows) width = std::max(width, Columns(row[0]));
  std::string text;
  for (const Row& row : rows) {
    absl::StrAppend(&text, std::string(indent), row[0],
                    std::string(static_cast<std::size_t>(width - Columns(row[0]) + 3), ' '), row[1],
                    "\n");
  }
  return text;
}

std::string TargetText(const v1alpha1::TrainingJob& job) {
  const v1alpha1::Target& target = job.spec().stop().target();
  const bool least = target.bound_case() == v1alpha1::Target::kAtLeast;
  const double bound = least ? target.at_least() : target.at_most();
  return absl::StrCat(target.metric(), least ? " at least " : " at most ", Significant(bound), ": ",
                      job.status().result().target_reached() ? "reached" : "not reached");
}

void AddIncidents(const v1alpha1::TrainingJobStatus& status, Rows& rows) {
  rows.push_back({"incidents", absl::StrCat(status.incidents_size())});
  for (const v1alpha1::Incident& incident : status.incidents()) {
    const std::string cost = WhatItCost(incident);
    rows.push_back({"", absl::StrCat(WhatHappened(incident), cost.empty() ? "" : ": ", cost)});
  }
}

// What takes most first, of the processes whose activities begin so: servers' are "server/NAME".
Rows SecondsRows(const v1alpha1::TrainingJobStatus& status, bool of_servers) {
  constexpr absl::string_view kOfServers = "server/";
  std::vector<std::pair<double, std::string>> spent;
  double all = 0;
  for (const auto& [name, seconds] : status.goodput()) {
    absl::string_view activity = name;
    if (absl::ConsumePrefix(&activity, kOfServers) != of_servers || seconds <= 0) continue;
    spent.emplace_back(-seconds, activity);
    all += seconds;
  }
  std::sort(spent.begin(), spent.end());
  Rows rows;
  for (const auto& [seconds, activity] : spent) {
    rows.push_back({activity, absl::StrFormat("%.1f s", -seconds),
                    absl::StrFormat("%.1f %%", -100 * seconds / all)});
  }
  return rows;
}

void AddMetrics(const v1alpha1::TrainingJob& job, Rows& rows) {
  const v1alpha1::Result& result = job.status().result();
  std::vector<std::pair<std::string, double>> metrics(result.metrics().begin(),
                                                      result.metrics().end());
  std::sort(metrics.begin(), metrics.end());
  for (auto& [name, value] : metrics) {
    const bool training = name.find('/') == std::string::npos;
    std::string words = training ? absl::StrCat("training ", name) : name;
    std::replace(words.begin(), words.end(), '/', ' ');
    rows.push_back({words, Significant(value)});
  }
  if (!result.metrics().contains("loss") && job.status().progress().has_loss()) {
    rows.push_back({"training loss", Significant(job.status().progress().loss())});
  }
  if (job.spec().stop().has_target() && result.has_target_reached()) {
    rows.push_back({"target", TargetText(job)});
  }
}

void AddAmounts(const v1alpha1::TrainingJob& job, Rows& rows) {
  const v1alpha1::Result& result = job.status().result();
  const double seconds = result.has_seconds() ? result.seconds() : job.status().active_seconds();
  rows.push_back({"epochs", Thousands(result.epochs())});
  rows.push_back({"steps", Thousands(result.steps())});
  rows.push_back({"samples", Thousands(result.samples())});
  if (seconds <= 0) return;
  rows.push_back({"time", Seconds(seconds)});
  const double speed = static_cast<double>(result.samples()) / seconds;
  rows.push_back({"samples a second", Thousands(static_cast<std::int64_t>(speed))});
}

// Local files as paths, to be pasted into a shell.
std::string Place(const std::string& uri) {
  const auto path = spec::PathOfUri(uri);
  return path.ok() ? *path : uri;
}

void AddFiles(const v1alpha1::TrainingJobStatus& status, Rows& rows) {
  const v1alpha1::ModelFile& model = status.result().model();
  if (!model.uri().empty()) rows.push_back({"model", Place(model.uri())});
  if (!model.sha256().empty()) rows.push_back({"model's SHA-256", model.sha256()});
  const v1alpha1::CheckpointStatus& checkpoint = status.last_checkpoint();
  if (!checkpoint.uri().empty()) {
    rows.push_back({"last checkpoint",
                    absl::StrCat("step ", checkpoint.step(), ", ", Place(checkpoint.uri()))});
  }
}

std::string ConditionsTable(const Json& job, absl::Time now) {
  Rows rows = {{"TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"}};
  for (const Json& condition : kube::At(job, "/status/conditions")) {
    const auto since = kube::ParseTimestamp(kube::StringAt(condition, "/lastTransitionTime"));
    rows.push_back({kube::StringAt(condition, "/type"), kube::StringAt(condition, "/status"),
                    OrDash(kube::StringAt(condition, "/reason")), since ? Age(now - *since) : "-",
                    Printable(kube::StringAt(condition, "/message"))});
  }
  return rows.size() > 1 ? Table(rows) : "none yet\n";
}

std::string Section(std::string_view title, const std::string& body) {
  std::string text = absl::StrCat("\n", std::string(title), ":\n");
  std::size_t begin = 0;
  while (begin < body.size()) {
    const std::size_t end = std::min(body.find('\n', begin), body.size());
    absl::StrAppend(&text, "  ", body.substr(begin, end - begin), "\n");
    begin = end + 1;
  }
  return text;
}

Rows ProgressRows(const v1alpha1::TrainingJob& job) {
  const v1alpha1::Progress& progress = job.status().progress();
  Rows rows;
  if (!job.status().has_progress()) return rows;
  rows.push_back({"epoch", absl::StrCat(progress.epoch())});
  rows.push_back({"step", progress.total_steps() > 0
                              ? absl::StrCat(progress.step(), " of ", progress.total_steps())
                              : absl::StrCat(progress.step())});
  rows.push_back({"samples", Thousands(progress.samples())});
  if (progress.has_loss()) rows.push_back({"loss", Significant(progress.loss())});
  std::vector<std::pair<std::string, double>> metrics(progress.metrics().begin(),
                                                      progress.metrics().end());
  std::sort(metrics.begin(), metrics.end());
  for (const auto& [name, value] : metrics) {
    if (name != "loss") rows.push_back({name, Significant(value)});
  }
  if (progress.has_samples_per_second()) {
    rows.push_back(
        {"samples a second", Thousands(static_cast<std::int64_t>(progress.samples_per_second()))});
  }
  for (const v1alpha1::ExchangePath& path : progress.exchanges()) {
    rows.push_back({path.exchange(), absl::StrCat("over ", path.transport(), ": ", path.algorithm(),
                                                  ", ", path.reason())});
  }
  for (const v1alpha1::Straggler& straggler : progress.stragglers()) {
    const std::string node = straggler.node().empty() ? "" : absl::StrCat(" on ", straggler.node());
    rows.push_back({"straggler", absl::StrCat(straggler.pod(), node, " works ",
                                              absl::StrFormat("%.1f", straggler.ratio()),
                                              " times as long on each step as the fastest workers, "
                                              "which wait for it")});
  }
  return rows;
}

}  // namespace

std::string Table(const Rows& rows) {
  std::vector<int> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i]));
  }
  std::string text;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      if (i + 1 == row.size()) continue;
      const int gap = widths[i] - Columns(row[i]) + 3;
      text.append(static_cast<std::size_t>(gap), ' ');
    }
    text += '\n';
  }
  return text;
}

std::string JobsTable(const std::vector<Json>& jobs, bool wide, bool with_namespace,
                      absl::Time now) {
  Row head = {"NAME", "STATE", "WORKERS", "EPOCH", "STEP", "LOSS", "ACCURACY", "AGE"};
  const bool past = std::any_of(jobs.begin(), jobs.end(),
                                [](const Json& job) { return !DeletedAt(job).empty(); });
  if (past) head.insert(head.end(), {"DELETED", "UID"});
  if (wide) head.insert(head.end(), {"SERVERS", "SAMPLES/S", "RESTARTS", "REMAINING", "MODEL"});
  Rows rows = {WithNamespace(with_namespace, "NAMESPACE", head)};
  for (const Json& job : jobs) {
    Row row = JobRow(job, wide, now);
    if (past) {
      const auto deleted = kube::ParseTimestamp(DeletedAt(job));
      row.insert(row.begin() + kAgeColumn + 1,
                 {deleted ? Age(now - *deleted) : "-", kube::UidOf(job)});
    }
    rows.push_back(WithNamespace(with_namespace, kube::NamespaceOf(job), std::move(row)));
  }
  return Table(rows);
}

std::string PodsTable(const std::vector<Json>& pods, bool wide, bool with_namespace,
                      absl::Time now) {
  Row head = {"NAME", "STATUS", "ROLE", "IP", "PID", "AGE"};
  if (wide) head.insert(head.end(), {"EXIT", "NODE", "UID"});
  Rows rows = {WithNamespace(with_namespace, "NAMESPACE", head)};
  for (const Json& pod : pods) {
    rows.push_back(WithNamespace(with_namespace, kube::NamespaceOf(pod), PodRow(pod, wide, now)));
  }
  return Table(rows);
}

std::string EventsTable(const std::vector<Json>& events, bool wide, bool with_namespace,
                        absl::Time now) {
  Row head = {"LAST SEEN", "TYPE", "REASON", "OBJECT"};
  if (wide) head.emplace_back("SOURCE");
  head.emplace_back("NOTE");
  Rows rows = {WithNamespace(with_namespace, "NAMESPACE", head)};
  for (const Json& event : ByTime(events)) {
    rows.push_back(
        WithNamespace(with_namespace, kube::NamespaceOf(event), EventRow(event, wide, now)));
  }
  return Table(rows);
}

std::string ProgressLine(const v1alpha1::TrainingJob& job) {
  const v1alpha1::Progress& progress = job.status().progress();
  const std::string state = job.status().state().empty() ? "Pending" : job.status().state();
  Row parts = {job.metadata().name()};
  if (state != "Running") parts.push_back(state);
  if (job.status().has_progress()) {
    parts.push_back(absl::StrCat("epoch ", progress.epoch(), "/", job.spec().stop().epochs()));
    std::string step = absl::StrCat("step ", progress.step());
    if (progress.total_steps() > 0) {
      absl::StrAppend(&step, "/", progress.total_steps(), " ",
                      absl::StrFormat("%d%%", 100 * progress.step() / progress.total_steps()));
    }
    parts.push_back(step);
    if (progress.has_estimated_remaining()) {
      parts.push_back(Seconds(static_cast<double>(progress.estimated_remaining().seconds())) +
                      " left");
    }
    if (progress.has_loss()) parts.push_back("loss " + Significant(progress.loss(), 3));
    const auto accuracy = progress.metrics().find("validation/accuracy");
    if (accuracy != progress.metrics().end()) {
      parts.push_back("accuracy " + Significant(accuracy->second));
    }
    if (progress.has_workers()) parts.push_back(Count(progress.workers(), "worker", "workers"));
    if (progress.has_samples_per_second()) {
      parts.push_back(absl::StrCat(
          Thousands(static_cast<std::int64_t>(progress.samples_per_second())), " samples/s"));
    }
  }
  return absl::StrJoin(parts, "  ");
}

std::string FinalPage(const v1alpha1::TrainingJob& job) {
  const v1alpha1::TrainingJobStatus& status = job.status();
  std::string text = absl::StrCat("\n", job.metadata().name(), ": ", status.state());
  for (const v1alpha1::Condition& condition : status.conditions()) {
    const bool failed = condition.type() == "Failed" && condition.status() == "True";
    if (failed) absl::StrAppend(&text, " (", condition.reason(), ": ", condition.message(), ")");
  }
  absl::StrAppend(&text, "\n\n");
  Rows rows;
  if (status.has_result()) {
    AddMetrics(job, rows);
    AddAmounts(job, rows);
  }
  AddIncidents(status, rows);
  AddFiles(status, rows);
  return text + Pairs(rows, "  ");
}

std::string DescribePage(const Json& job, const std::vector<Json>& pods,
                         const std::vector<Json>& events, absl::Time now) {
  const v1alpha1::TrainingJob message = ToMessage(job);
  Rows head = {{"Name:", kube::NameOf(job)}, {"Namespace:", kube::NamespaceOf(job)},
               {"UID:", kube::UidOf(job)},   {"State:", StateOf(job)},
               {"Age:", AgeOf(job, now)},    {"Workers:", JobRow(job, false, now)[2]}};
  if (const std::string creator = kube::AnnotationOf(job, kCreatedBy); !creator.empty()) {
    head.push_back({"Created by:", Printable(creator)});
  }
  if (const std::string deleted = DeletedAt(job); !deleted.empty()) {
    head.push_back({"Deleted:", deleted});
  }
  if (const std::string servers = ServersOf(job); !servers.empty()) {
    head.push_back({"Parameter servers:", servers});
  }
  std::string text = Pairs(head, "");
  text += Section("Conditions", ConditionsTable(job, now));
  const Rows progress = ProgressRows(message);
  if (!progress.empty()) text += Section("Progress", Pairs(progress, ""));
  Rows rows;
  if (message.status().has_result()) {
    AddMetrics(message, rows);
    AddAmounts(message, rows);
  }
  AddIncidents(message.status(), rows);
  AddFiles(message.status(), rows);
  text += Section(message.status().has_result() ? "Result" : "So far", Pairs(rows, ""));
  for (const bool of_servers : {false, true}) {
    const Rows seconds = SecondsRows(message.status(), of_servers);
    if (seconds.empty()) continue;
    text += Section(
        of_servers ? "Where the parameter servers' time went" : "Where the workers' time went",
        Table(seconds));
  }
  text += Section("Pods", pods.empty() ? "none\n" : PodsTable(pods, true, false, now));
  text += Section("Events", events.empty() ? "none\n" : EventsTable(events, false, false, now));
  return text;
}

std::string CurvesSection(const std::map<std::string, history::Points>& curves) {
  Rows rows = {{"METRIC", "POINTS", "STEPS", "FIRST", "LOWEST", "HIGHEST", "LAST"}};
  for (const auto& [metric, curve] : curves) {
    if (curve.empty()) continue;
    const auto [low, high] = std::minmax_element(
        curve.begin(), curve.end(),
        [](const history::Point& a, const history::Point& b) { return a.value < b.value; });
    rows.push_back({metric, absl::StrCat(curve.size()),
                    absl::StrCat(curve.front().step, "-", curve.back().step),
                    Significant(curve.front().value), Significant(low->value),
                    Significant(high->value), Significant(curve.back().value)});
  }
  return rows.size() == 1 ? "" : Section("Curves", Table(rows));
}

v1alpha1::TrainingJob ToMessage(const Json& job) {
  v1alpha1::TrainingJob message;
  spec::ReadMessage(job, "", message, spec::kLenient);
  *message.mutable_spec() = spec::Resolve(message.spec());
  return message;
}

}  // namespace starling::cli

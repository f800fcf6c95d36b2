// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/usage.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "controller/kube/objects.h"
#include "controller/resources/demand.h"

namespace starling::service {
namespace {

using kube::Json;
using resources::Role;

constexpr std::string_view kServers = "server/";  // of a parameter server's activities

double CoresOf(const Json& job, Role role) {
  const std::string path =
      absl::StrCat("/spec/replicaSpecs/", resources::Text(resources::RoleField(role)), "/template");
  return resources::CoresOf(role, kube::At(job, path));
}

// What the processes themselves have accounted for.
void AddSeconds(const Json& job, Json& use) {
  double workers = 0, servers = 0;
  for (const auto& [activity, seconds] : kube::At(job, "/status/goodput").items()) {
    if (!seconds.is_number() || !(seconds.get<double>() > 0)) continue;
    (activity.starts_with(kServers) ? servers : workers) += seconds.get<double>();
  }
  use["processSeconds"] = workers + servers;
  use["coreSeconds"] = workers * CoresOf(job, Role::kWorker) +
                       (servers > 0 ? servers * CoresOf(job, Role::kParameterServer) : 0);
}

// Of the time between two, how much of it lies within the query: 0 to 1.
double ShareWithin(const UsageQuery& query, absl::Time from, absl::Time to) {
  if (to <= query.from || from >= query.to) return 0;
  const absl::Duration within = std::min(to, query.to) - std::max(from, query.from);
  const absl::Duration all = to - from;
  return all <= absl::ZeroDuration() ? 1 : absl::FDivDuration(within, all);
}

double NumberAt(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

double Rounded(double seconds) { return std::round(seconds * 1000) / 1000; }

// As RFC 4180 has it. A spreadsheet takes what begins so for a formula.
std::string Cell(std::string text) {
  if (!text.empty() && std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos) {
    text.insert(0, "'");
  }
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace

Json UseOf(const Json& job) {
  const std::string from = kube::StringAt(job, "/status/startTime");
  if (from.empty()) return nullptr;
  Json use = {{"from", from}};
  if (const std::string to = kube::StringAt(job, "/status/completionTime"); !to.empty()) {
    use["to"] = to;
  }
  if (!kube::At(job, "/spec/workload/container").is_object()) {
    AddSeconds(job, use);
    return use;
  }
  const std::int64_t workers = kube::IntAt(job, "/spec/replicaSpecs/worker/replicas", 1);
  use["processes"] = workers;
  use["cores"] = static_cast<double>(workers) * CoresOf(job, Role::kWorker);
  return use;
}

void Usage::Add(const Json& summary, std::optional<absl::Time> gone) {
  const auto found = summary.find("use");
  if (found == summary.end()) {
    // Jobs that have not begun have used nothing; what older versions recorded nobody can tell.
    const bool begun = kube::IntAt(summary, "/step") > 0 || gone.has_value();
    unknown_ += begun ? 1 : 0;
    return;
  }
  const auto from = kube::ParseTimestamp(kube::StringAt(*found, "/from"));
  if (!from) return;
  const absl::Time to =
      kube::ParseTimestamp(kube::StringAt(*found, "/to")).value_or(gone.value_or(now_));
  const double share = ShareWithin(query_, *from, to);
  if (share <= 0) return;
  const auto text = [&](bool wanted, const char* field) {
    return wanted ? kube::StringAt(summary, field) : std::string();
  };
  Sum& sum = sums_[{text(query_.by_namespace, "/namespace"), text(query_.by_account, "/createdBy"),
                    text(query_.by_job, "/name")}];
  ++sum.jobs;
  const bool estimated = found->contains("cores");
  estimated_ += estimated ? 1 : 0;
  const double seconds = estimated ? absl::ToDoubleSeconds(to - *from) : 1;
  sum.core_seconds += share * seconds * NumberAt(*found, estimated ? "cores" : "coreSeconds");
  sum.process_seconds +=
      share * seconds * NumberAt(*found, estimated ? "processes" : "processSeconds");
}

Json Usage::Rows() const {
  std::vector<std::pair<Key, Sum>> rows(sums_.begin(), sums_.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second.core_seconds > b.second.core_seconds;
  });
  Json items = Json::array();
  for (const auto& [key, sum] : rows) {
    Json item = {{"jobs", sum.jobs},
                 {"coreSeconds", Rounded(sum.core_seconds)},
                 {"processSeconds", Rounded(sum.process_seconds)}};
    if (query_.by_namespace) item["namespace"] = std::get<0>(key);
    if (query_.by_account) item["account"] = std::get<1>(key);
    if (query_.by_job) item["job"] = std::get<2>(key);
    items.push_back(std::move(item));
  }
  return items;
}

Json Usage::ToJson() const {
  Json usage = {{"items", Rows()}, {"estimatedJobs", estimated_}, {"unknownJobs", unknown_}};
  if (query_.from > absl::InfinitePast()) usage["from"] = kube::FormatTimestamp(query_.from);
  usage["to"] = kube::FormatTimestamp(std::min(query_.to, now_));
  return usage;
}

std::string Usage::ToCsv() const {
  std::string text = "namespace,account,job,jobs,coreSeconds,processSeconds\r\n";
  for (const Json& row : Rows()) {
    absl::StrAppend(&text, Cell(row.value("namespace", "")), ",", Cell(row.value("account", "")),
                    ",", Cell(row.value("job", "")), ",", row["jobs"].get<std::int64_t>(), ",",
                    row["coreSeconds"].get<double>(), ",", row["processSeconds"].get<double>(),
                    "\r\n");
  }
  return text;
}

}  // namespace starling::service

// SPDX-License-Identifier: Apache-2.0
// plan and usage: what a job would take, and what jobs have taken. Both ask a REST service.
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/format.h"
#include "cli/job_source.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

constexpr double kMebibyte = 1048576;

absl::Status CheckOutput(const Arguments& arguments) {
  const std::string output = arguments.Get("output");
  if (output.empty() || output == "json") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("-o ", output, ": only json is known here"));
}

// The service that --server names, or that of this home.
absl::StatusOr<RestClient*> Service(Session& session) {
  if (session.in_cluster()) {
    return absl::InvalidArgumentError(
        "ask the cluster's REST service: --server https://..., see `starling help` for its token");
  }
  return session.RestOrHome();
}

std::string AmountText(const std::string& resource, double amount) {
  if (resource == "memory" || resource.ends_with("storage")) {
    return absl::StrFormat("%.0f MiB", amount / kMebibyte);
  }
  if (resource == "cpu") return absl::StrCat(Significant(amount), amount == 1 ? " core" : " cores");
  return absl::StrCat(Significant(amount), " ", resource);
}

std::string AmountsText(const Json& amounts) {
  std::string text;
  for (const auto& [resource, amount] : amounts.items()) {
    if (!amount.is_number() || resource == "jobs") continue;
    absl::StrAppend(&text, text.empty() ? "" : ", ", AmountText(resource, amount.get<double>()));
  }
  return text;
}

std::string DurationText(const Json& duration) {
  const Json& seconds = kube::At(duration, "/seconds");
  const std::string basis = kube::StringAt(duration, "/basis");
  if (!seconds.is_object()) return basis;
  return absl::StrCat("half of such jobs within ", Seconds(seconds.value("p50", 0.0)),
                      ", nine of ten within ", Seconds(seconds.value("p90", 0.0)), "; by ", basis);
}

std::string PlanPage(const Json& plan) {
  std::string page;
  const auto line = [&page](const char* name, const std::string& text) {
    if (!text.empty()) absl::StrAppendFormat(&page, "%-10s %s\n", name, text);
  };
  for (const Json& role : kube::At(plan, "/pods")) {
    line(page.empty() ? "pods" : "",
         absl::StrCat(kube::IntAt(role, "/replicas"), " x ", kube::StringAt(role, "/role"), ": ",
                      AmountsText(kube::At(role, "/each")), " each"));
  }
  line("total", AmountsText(kube::At(plan, "/total")));
  for (const Json& left : kube::At(plan, "/left")) {
    line("left", absl::StrCat(kube::StringAt(left, "/source"), ": ",
                              AmountsText(kube::At(left, "/amounts"))));
  }
  line("unknown", kube::StringAt(plan, "/unknown"));
  line("fits", kube::StringAt(plan, "/fits"));
  line("because", kube::StringAt(plan, "/why"));
  line("takes", DurationText(kube::At(plan, "/duration")));
  return page;
}

std::string UsagePage(const Json& usage) {
  std::string page = absl::StrFormat("%-20s %-30s %6s %14s %14s\n", "NAMESPACE", "ACCOUNT", "JOBS",
                                     "CORE-SECONDS", "PROCESS-SECS");
  for (const Json& row : kube::At(usage, "/items")) {
    const std::string account = row.value("account", "");
    absl::StrAppendFormat(&page, "%-20s %-30s %6d %14.1f %14.1f\n", row.value("namespace", "-"),
                          account.empty() ? "-" : account, row.value("jobs", 0),
                          row.value("coreSeconds", 0.0), row.value("processSeconds", 0.0));
  }
  return page;
}

absl::Status Plan(Session& session, const Arguments& arguments) {
  RETURN_IF_ERROR(CheckOutput(arguments));
  ASSIGN_OR_RETURN(RestClient * rest, Service(session));
  ASSIGN_OR_RETURN(const LoadedJob loaded, LoadJob({.file = arguments.names[0],
                                                    .settings = arguments.All("set"),
                                                    .ns = arguments.Get("namespace"),
                                                    .check_data = false,
                                                    .default_ns = session.default_namespace(),
                                                    .relative_uris = !session.sees_files(),
                                                    .remember_spec = false}));
  ASSIGN_OR_RETURN(const Json plan, rest->Plan(loaded.object));
  session.terminal().Print(arguments.Has("output") ? json::DumpPretty(plan) + "\n"
                                                   : PlanPage(plan));
  return absl::OkStatus();
}

absl::Status ShowUsage(Session& session, const Arguments& arguments) {
  RETURN_IF_ERROR(CheckOutput(arguments));
  ASSIGN_OR_RETURN(RestClient * rest, Service(session));
  ASSIGN_OR_RETURN(const Json usage,
                   rest->Usage(arguments.Has("all-namespaces") ? "" : NamespaceOf(arguments),
                               arguments.Get("from"), arguments.Get("to")));
  session.terminal().Print(arguments.Has("output") ? json::DumpPretty(usage) + "\n"
                                                   : UsagePage(usage));
  for (const auto& [field, text] :
       {std::pair("/estimatedJobs", " bring their own container and count as what they asked for"),
        std::pair("/unknownJobs", " were recorded by an older version and are not counted")}) {
    const std::int64_t jobs = kube::IntAt(usage, field);
    if (jobs > 0) session.terminal().Say(absl::StrCat(Count(jobs, "job", "jobs"), text));
  }
  return absl::OkStatus();
}

}  // namespace

int PlanCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Plan(session, arguments));
}

int UsageCommand(Session& session, const Arguments& arguments) {
  return session.Fail(ShowUsage(session, arguments));
}

}  // namespace starling::cli

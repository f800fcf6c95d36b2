// SPDX-License-Identifier: Apache-2.0
#include "cli/rest_logs.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

constexpr absl::Duration kLook = absl::Milliseconds(100);  // in which Ctrl-C is noticed

struct Wanted {
  kube::ObjectKey job;
  std::string pod;  // empty: all of the job
};

// What the name is of: a job, or a pod of one.
absl::StatusOr<Wanted> Find(RestClient& rest, const kube::ObjectKey& key) {
  const auto job = rest.Get(kube::kTrainingJob, key);
  if (job.ok()) return Wanted{key, ""};
  const std::string owner = JobOfPod(key.name);
  if (!absl::IsNotFound(job.status())) return job.status();
  if (owner.empty()) {
    return absl::NotFoundError(absl::StrCat("no job or pod \"", key.ToString(), "\""));
  }
  return Wanted{{key.ns, owner}, key.name};
}

}  // namespace

bool HeardLines::Take(const std::string& pod, const std::string& line) {
  Told& told = told_[pod];
  std::size_t& now = now_[pod];
  if (now == 0 && (told.lines == 0 || told.first != line)) told = {line, 0};
  if (++now <= told.lines) return false;
  told.lines = now;
  return true;
}

absl::Status RestLogs(Session& session, const Arguments& arguments) {
  std::optional<std::int64_t> tail;
  if (arguments.Has("tail")) {
    std::int64_t lines = 0;
    if (!absl::SimpleAtoi(arguments.Get("tail"), &lines) || lines < 0) {
      return absl::InvalidArgumentError("--tail: write a whole number of lines, 0 or more");
    }
    tail = lines;
  }
  ASSIGN_OR_RETURN(RestClient * rest, session.Rest());
  ASSIGN_OR_RETURN(const Wanted wanted, Find(*rest, JobKey(arguments, arguments.names[0])));
  const auto stream = rest->Logs(wanted.job, wanted.pod, arguments.Has("follow"), tail);
  RETURN_IF_ERROR(stream->Start());
  HeardLines heard;
  int connections = stream->connections();
  while (true) {
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    const auto event = stream->Next(kLook);
    if (absl::IsOutOfRange(event.status())) return absl::OkStatus();
    RETURN_IF_ERROR(event.status());
    if (!*event || (*event)->name != "log") continue;
    if (stream->connections() != connections) {
      if (tail) {
        return absl::UnavailableError(
            "the connection was cut, and with --tail nobody knows where the log stood; ask again, "
            "or follow it without --tail");
      }
      connections = stream->connections();
      heard.BeginAnew();
    }
    const std::string pod = kube::StringAt((*event)->data, "/pod");
    const std::string line = kube::StringAt((*event)->data, "/line");
    if (!heard.Take(pod, line)) continue;
    session.terminal().Print(wanted.pod.empty() ? absl::StrCat("[", pod, "] ", line, "\n")
                                                : absl::StrCat(line, "\n"));
  }
}

}  // namespace starling::cli

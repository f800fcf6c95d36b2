// SPDX-License-Identifier: Apache-2.0
// trace: have a job that trains record what its time goes by with, and write it to a file.
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "api/spec/trace_request.h"
#include "cli/apply.h"
#include "cli/commands.h"
#include "cli/control_plane.h"
#include "common/gzip/gzip.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::cli {
namespace {

using kube::Json;

// Beyond the time for recording: for the way there and back.
constexpr absl::Duration kOnTheWay = absl::Seconds(30);
// What is looked at may have a megabyte, of an earlier request.
constexpr absl::Duration kLook = absl::Milliseconds(250);
constexpr std::size_t kLargestTrace = std::size_t{256} << 20;

struct StoredTrace {
  std::string request;  // that it was recorded for
  std::string packed;
};

// NotFound: none was recorded.
absl::StatusOr<StoredTrace> ReadStored(Session& session, const Json& job) {
  if (session.over_rest()) {
    ASSIGN_OR_RETURN(RestClient * rest, session.Rest());
    StoredTrace stored;
    ASSIGN_OR_RETURN(stored.packed, rest->Trace(kube::KeyOf(job), stored.request));
    return stored;
  }
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const std::string name = spec::TraceConfigName(kube::NameOf(job));
  ASSIGN_OR_RETURN(const Json config, store->Get(kube::kConfigMap, {kube::NamespaceOf(job), name}));
  if (kube::ControllerUidOf(config) != kube::UidOf(job)) {
    return absl::AlreadyExistsError(absl::StrCat("ConfigMap ", name,
                                                 " is somebody else's; nothing "
                                                 "can be stored until it is deleted"));
  }
  StoredTrace stored{kube::AnnotationOf(config, spec::kTraceRequest), ""};
  const std::string text = kube::StringAt(config, absl::StrCat("/binaryData/", spec::kTraceKey));
  if (!absl::Base64Unescape(text, &stored.packed)) {
    return absl::DataLossError(absl::StrCat("ConfigMap ", name, " cannot be read"));
  }
  return stored;
}

// Of a job whose trace was asked for by `request`.
absl::StatusOr<StoredTrace> AwaitTrace(Session& session, const Json& asked,
                                       const std::string& request, absl::Duration patience) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const absl::Time deadline = session.clock().Now() + patience;
  while (true) {
    absl::StatusOr<StoredTrace> stored = ReadStored(session, asked);
    if (stored.ok() && stored->request == request) return stored;
    if (!stored.ok() && !absl::IsNotFound(stored.status())) return stored.status();
    ASSIGN_OR_RETURN(const Json job, store->Get(kube::kTrainingJob, kube::KeyOf(asked)));
    if (kube::UidOf(job) != kube::UidOf(asked)) {
      return absl::NotFoundError(
          absl::StrCat("job \"", kube::NameOf(asked), "\" was replaced meanwhile"));
    }
    if (spec::TraceRequestOf(job) != request) {
      return absl::AbortedError(absl::StrCat("somebody else has asked job \"", kube::NameOf(asked),
                                             "\" for a timeline since, or has taken back yours"));
    }
    if (session.interrupts().count() > 0) return absl::CancelledError("interrupted");
    if (session.clock().Now() > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("job \"", kube::NameOf(job), "\" (", kube::StringAt(job, "/status/state"),
                       ") has recorded nothing within ", absl::FormatDuration(patience),
                       "; see starling describe ", kube::NameOf(job)));
    }
    session.interrupts().Wait(kLook);
  }
}

absl::Status WriteFile(Session& session, const StoredTrace& trace, const std::string& path) {
  if (path.ends_with(".gz")) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << trace.packed;
    if (file.flush()) return absl::OkStatus();
  } else {
    ASSIGN_OR_RETURN(const std::string text, gzip::Unpack(trace.packed, kLargestTrace));
    if (path == "-") {
      session.terminal().Print(text + "\n");
      return absl::OkStatus();
    }
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text << "\n";
    if (file.flush()) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(path, ": cannot be written; choose another with -o"));
}

// "2 processes, steps 1204 to 1253, ended because all workers had made 50 steps".
std::string InWords(const StoredTrace& trace) {
  const auto text = gzip::Unpack(trace.packed, kLargestTrace);
  if (!text.ok()) return "";
  const auto read = json::Parse(*text, {.bytes = kLargestTrace, .nodes = 10'000'000});
  if (!read.ok()) return "";
  const Json& about = kube::At(*read, "/otherData");
  const Json& members = kube::At(about, "/members");
  std::int64_t first = 0, last = 0;
  for (const Json& member : members) {
    const std::int64_t begin = kube::IntAt(member, "/firstStep");
    if (begin > 0) first = first == 0 ? begin : std::min(first, begin);
    last = std::max(last, kube::IntAt(member, "/lastStep"));
  }
  std::string words = absl::StrCat(members.size(), members.size() == 1 ? " process" : " processes");
  if (first > 0) absl::StrAppend(&words, ", steps ", first, " to ", last);
  absl::StrAppend(&words, "; it ended because ", kube::StringAt(about, "/ended"));
  for (const auto& [pod, why] : kube::At(about, "/silent").items()) {
    absl::StrAppend(&words, "\nnothing of ", pod, ": ",
                    why.is_string() ? why.get<std::string>() : "");
  }
  return words;
}

absl::StatusOr<spec::TraceWish> WishOf(const Arguments& arguments) {
  spec::TraceWish wish;
  if (arguments.Has("steps") && !absl::SimpleAtoi(arguments.Get("steps"), &wish.steps)) {
    return absl::InvalidArgumentError("--steps: write a whole number");
  }
  ASSIGN_OR_RETURN(wish.time, DurationFlag(arguments, "time", wish.time));
  if (const absl::Status wrong = spec::CheckTraceWish(wish); !wrong.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", std::string(wrong.message())));
  }
  return wish;
}

absl::StatusOr<StoredTrace> Record(Session& session, const Json& job, const spec::TraceWish& wish) {
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  const kube::ObjectKey key = kube::KeyOf(job);
  if (!session.remote() && !ControllerRuns(session.home())) {
    return absl::UnavailableError(
        "no control plane is up, so nothing trains: start it with `starling up`");
  }
  ASSIGN_OR_RETURN(const Json asked,
                   store->Patch(kube::kTrainingJob, key,
                                spec::TraceRequestPatch(job, wish, session.clock().WallNow())));
  const std::string request = spec::TraceRequestOf(asked);
  absl::StatusOr<StoredTrace> trace = AwaitTrace(session, asked, request, wish.time + kOnTheWay);
  if (absl::IsCancelled(trace.status()) || absl::IsDeadlineExceeded(trace.status())) {
    (void)store->Patch(kube::kTrainingJob, key, spec::TraceWithdrawal(asked));
  }
  return trace;
}

absl::Status Trace(Session& session, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const spec::TraceWish wish, WishOf(arguments));
  const kube::ObjectKey key = JobKey(arguments, arguments.names[0]);
  ASSIGN_OR_RETURN(kube::KubeClient * store, session.Store());
  ASSIGN_OR_RETURN(const Json job, store->Get(kube::kTrainingJob, key));
  const std::string path = arguments.Get("output", key.name + "-trace.json");
  StoredTrace trace;
  if (const absl::Status possible = spec::CheckTraceRequest(job); possible.ok()) {
    ASSIGN_OR_RETURN(trace, Record(session, job, wish));
  } else {
    // What was recorded while it trained is kept as long as the job.
    auto stored = ReadStored(session, job);
    if (!stored.ok()) return absl::IsNotFound(stored.status()) ? possible : stored.status();
    trace = *std::move(stored);
    session.terminal().Say(
        absl::StrCat(std::string(possible.message()), "; this is what was recorded last"));
  }
  RETURN_IF_ERROR(WriteFile(session, trace, path));
  if (path == "-") return absl::OkStatus();
  session.terminal().Print(absl::StrCat("trainingjob.starling.dev/", key.name, " trace in ", path,
                                        ": ", InWords(trace), "\n"));
  return absl::OkStatus();
}

}  // namespace

int TraceCommand(Session& session, const Arguments& arguments) {
  return session.Fail(Trace(session, arguments));
}

}  // namespace starling::cli

// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include "common/clock/clock.h"
#include "common/log/log.h"
#include "common/sync/mutex.h"

namespace starling::rpc {
namespace {

// gRPC takes a plain function without a context, so the state that it needs is global. It is never
// destroyed, because gRPC's threads may outlive main.
struct Sink {
  sync::Mutex mutex;
  LogLimit limit ABSL_GUARDED_BY(mutex);
};

log::Level LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_DEBUG:
      return log::Level::kDebug;
    case GPR_LOG_SEVERITY_INFO:
      return log::Level::kInfo;
    case GPR_LOG_SEVERITY_ERROR:
      break;
  }
  // gRPC reports failures of peers as errors; the call that failed already returns them to its
  // caller.
  return log::Level::kWarning;
}

void WriteLine(gpr_log_func_args* line) {
  // gRPC takes a plain function, so the state that it needs is global.
  static Sink& sink = *new Sink();  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)
  const std::string_view path(line->file);
  const std::string_view file = path.substr(path.rfind('/') + 1);
  std::optional<std::int64_t> left_out;
  {
    sync::MutexLock lock(sink.mutex);
    left_out = sink.limit.Admit(file, line->line, clock::SystemClock().Now());
  }
  if (!left_out.has_value()) return;
  log::Write(LevelOf(line->severity), "grpc",
             {{"says", line->message}, {"at", file}, {"left_out", *left_out}});
}

}  // namespace

void RouteGrpcLog() { gpr_set_log_function(WriteLine); }

std::optional<std::int64_t> LogLimit::Admit(std::string_view file, int line, absl::Time now) {
  const auto [found, first] = places_.try_emplace({std::string(file), line}, Place{now, 0});
  Place& place = found->second;
  if (!first && now < place.written + kLogEvery) {
    ++place.left_out;
    return std::nullopt;
  }
  const std::int64_t left_out = place.left_out;
  place = {now, 0};
  return left_out;
}

}  // namespace starling::rpc

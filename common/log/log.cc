// SPDX-License-Identifier: Apache-2.0
#include "common/log/log.h"

#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/trace/trace_context.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace starling::log {
namespace {

constexpr std::array<const char*, 4> kNames = {"debug", "info", "warning", "error"};
constexpr std::array<spdlog::level::level_enum, 4> kLevels = {
    spdlog::level::debug, spdlog::level::info, spdlog::level::warn, spdlog::level::err};

// Of this process, once it is known; empty: it belongs to none.
std::string& TraceId() {
  static std::string& id = *new std::string;
  return id;
}

bool IsSecret(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
  for (const char* word : {"secret", "token", "password", "private_key", "authorization"}) {
    if (absl::StrContains(lower, word)) return true;
  }
  return false;
}

nlohmann::ordered_json Line(Level level, std::string_view component, std::string_view message,
                            Fields fields) {
  nlohmann::ordered_json line;
  line["level"] = kNames[static_cast<std::size_t>(level)];
  line["logger"] = component;
  line["msg"] = message;
  for (const Field& field : fields) {
    line[field.name()] = IsSecret(field.name()) ? "[redacted]" : field.value();
  }
  return line;
}

std::string Dump(const nlohmann::ordered_json& line) {
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void Start(std::string_view component, Level level) {
  auto logger = std::make_shared<spdlog::logger>(std::string(component),
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%v");
  logger->set_level(kLevels[static_cast<std::size_t>(level)]);
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  const char* given = std::getenv("TRACEPARENT");
  const auto context = trace::ParseTraceparent(given == nullptr ? "" : given);
  TraceId() = context ? context->trace_id : "";
}

void Write(Level level, std::string_view message, Fields fields) {
  spdlog::logger* logger = spdlog::default_logger_raw();
  const auto spd_level = kLevels[static_cast<std::size_t>(level)];
  if (logger == nullptr || !logger->should_log(spd_level)) return;
  nlohmann::ordered_json line;
  line["ts"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  line.update(Line(level, logger->name(), message, fields));
  if (!TraceId().empty()) line["trace_id"] = TraceId();
  logger->log(spd_level, "{}", Dump(line));
}

std::string Format(Level level, std::string_view component, std::string_view message,
                   Fields fields) {
  return Dump(Line(level, component, message, fields));
}

}  // namespace starling::log

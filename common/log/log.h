// SPDX-License-Identifier: Apache-2.0
// Structured logs: a constant message and fields, one JSON object a line on stderr.
//
//   log::Info("pod created", {{"job", key}, {"pod", name}});
//
// Messages are constants so that they can be searched for; what varies goes into fields. Log at the
// decision, once; a repeated state only when it changes. Values of fields whose names say that they
// are secret (token, secret, password, key material) never reach the sink.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"

namespace starling::log {

enum class Level { kDebug, kInfo, kWarning, kError };

// A field's name and value; numbers and booleans are written as text.
class Field {
 public:
  Field(std::string_view name, std::string_view value) : name_(name), value_(value) {}
  Field(std::string_view name, const std::string& value) : name_(name), value_(value) {}
  Field(std::string_view name, const char* value) : name_(name), value_(value) {}
  Field(std::string_view name, bool value) : name_(name), value_(value ? "true" : "false") {}
  template <typename Number>
  Field(std::string_view name, Number value) : name_(name), value_(absl::StrCat(value)) {}

  const std::string& name() const { return name_; }
  const std::string& value() const { return value_; }

 private:
  std::string name_;
  std::string value_;
};

using Fields = std::initializer_list<Field>;

// Called once by main: the lines carry `component` as "logger", and as "trace_id" the trace that
// the variable TRACEPARENT names (common/trace); lines below `level` are dropped.
void Start(std::string_view component, Level level = Level::kInfo);

// Thread-safe, all of them.
void Write(Level level, std::string_view message, Fields fields);
inline void Debug(std::string_view message, Fields fields = {}) {
  Write(Level::kDebug, message, fields);
}
inline void Info(std::string_view message, Fields fields = {}) {
  Write(Level::kInfo, message, fields);
}
inline void Warning(std::string_view message, Fields fields = {}) {
  Write(Level::kWarning, message, fields);
}
inline void Error(std::string_view message, Fields fields = {}) {
  Write(Level::kError, message, fields);
}

// The line that Write would emit, without the time: for tests.
std::string Format(Level level, std::string_view component, std::string_view message,
                   Fields fields);

}  // namespace starling::log

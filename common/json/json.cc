// SPDX-License-Identifier: Apache-2.0
#include "common/json/json.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace starling::json {
namespace {

using Json = nlohmann::json;

// Builds the value and holds it against the limits on the way: nothing beyond them is ever stored,
// so that no later walk or destructor recurses deeper than the limit. Confined to Parse.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const Limits& limits) : limits_(limits) {}

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return Fail("binary data"); }

  bool start_object(std::size_t) override { return Open(Json::object()); }
  bool start_array(std::size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    Level& level = levels_.back();
    auto& members = level.value->get_ref<Json::object_t&>();
    const auto [member, added] = members.try_emplace(std::move(name));
    level.key = &member->first;
    level.place = &member->second;
    if (added) return true;
    return Fail(absl::StrCat("the key \"", member->first, "\" stands twice; leave one of them"));
  }

  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    const std::string text = error.what();
    const auto end_of_name = text.find("] ");
    return Fail(end_of_name == std::string::npos ? text : text.substr(end_of_name + 2));
  }

  const std::string& error() const { return error_; }
  Json Take() { return std::move(root_); }

 private:
  struct Level {
    Json* value;
    // Of an object, where its next value goes, and under which key.
    Json* place = nullptr;
    const std::string* key = nullptr;
  };

  bool Fail(std::string message) {
    if (error_.empty()) error_ = std::move(message);
    return false;
  }

  std::string Path() const {
    std::string path;
    for (const Level& level : levels_) {
      if (level.value->is_array()) {
        absl::StrAppend(&path, "[", level.value->size(), "]");
      } else {
        absl::StrAppend(&path, path.empty() ? "" : ".", *level.key);
      }
    }
    return path.empty() ? "the top" : path;
  }

  Json* Place(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    return &(*level.place = std::move(value));
  }

  bool Add(Json value) {
    if (++nodes_ > limits_.nodes) {
      return Fail(absl::StrCat("more than ", limits_.nodes, " values, the last at ", Path()));
    }
    Place(std::move(value));
    return true;
  }

  bool Open(Json container) {
    if (levels_.size() >= limits_.depth) {
      return Fail(absl::StrCat("nested more than ", limits_.depth, " deep at ", Path()));
    }
    if (++nodes_ > limits_.nodes) {
      return Fail(absl::StrCat("more than ", limits_.nodes, " values, the last at ", Path()));
    }
    levels_.push_back({.value = Place(std::move(container))});
    return true;
  }

  bool Close() {
    levels_.pop_back();
    return true;
  }

  const Limits limits_;
  Json root_;
  std::vector<Level> levels_;
  std::size_t nodes_ = 0;
  std::string error_;
};

}  // namespace

absl::StatusOr<Json> Parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("JSON of ", text.size(), " bytes; at most ", limits.bytes, " are read"));
  }
  // The library's lexer takes a NUL for the end and would pass over what follows.
  if (const auto nul = text.find('\0'); nul != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("JSON with a NUL byte at offset ", nul));
  }
  Builder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(absl::StrCat("not valid JSON: ", builder.error()));
  }
  return builder.Take();
}

std::string Dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string DumpPretty(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace);
}

bool IsUtf8(std::string_view text) {
  const auto byte = [text](std::size_t i) -> std::uint32_t {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
  };
  for (std::size_t i = 0; i < text.size();) {
    const std::uint32_t first = byte(i);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xC2 ? 0
                               : first < 0xE0 ? 2
                               : first < 0xF0 ? 3
                               : first < 0xF5 ? 4
                                              : 0;
    if (length == 0) return false;
    for (std::size_t j = 1; j < length; ++j) {
      if ((byte(i + j) & 0xC0U) != 0x80U) return false;
    }
    const std::uint32_t second = byte(i + 1);
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
      return false;
    }
    i += length;
  }
  return true;
}

std::string Describe(const Json& value) {
  constexpr std::size_t kShown = 40;
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::string: {
      const auto& text = value.get_ref<const std::string&>();
      if (text.size() <= kShown) return absl::StrCat("the text ", Dump(value));
      return absl::StrCat("the text ", Dump(text.substr(0, kShown)), "...");
    }
    default:
      return absl::StrCat("the number ", Dump(value));
  }
}

}  // namespace starling::json

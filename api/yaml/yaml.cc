// SPDX-License-Identifier: Apache-2.0
#include "api/yaml/yaml.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <istream>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/mark.h"
#include "yaml-cpp/parser.h"

namespace starling::yaml {
namespace {

using Json = nlohmann::json;

// Ends yaml-cpp's parsing from within an event; never leaves this file.
struct Refusal {
  YAML::Mark mark;
  std::string message;
};

std::string Place(const YAML::Mark& mark) {
  if (mark.is_null()) return "";
  return absl::StrCat("line ", mark.line + 1, ", column ", mark.column + 1, ": ");
}

bool AllDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// [digits][.digits][e[sign]digits], with a digit before or after the point.
bool IsDecimal(std::string_view text) {
  const auto exponent = text.find_first_of("eE");
  if (exponent != std::string_view::npos) {
    std::string_view power = text.substr(exponent + 1);
    if (!power.empty() && (power[0] == '+' || power[0] == '-')) power.remove_prefix(1);
    if (!AllDigits(power)) return false;
    text = text.substr(0, exponent);
  }
  const auto point = text.find('.');
  if (point == std::string_view::npos) return AllDigits(text);
  const std::string_view whole = text.substr(0, point), fraction = text.substr(point + 1);
  return (AllDigits(whole) || whole.empty()) && (AllDigits(fraction) || fraction.empty()) &&
         !(whole.empty() && fraction.empty());
}

template <typename Number>
bool Converts(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end;
}

// A plain scalar by YAML 1.2's core schema, less octal, hexadecimal, infinity and NaN.
Json ValueOf(const std::string& text, const YAML::Mark& mark) {
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  std::string_view digits = text;
  const bool negative = digits.substr(0, 1) == "-";
  if (negative || digits.substr(0, 1) == "+") digits.remove_prefix(1);
  // 0777 is octal to some readers and decimal to others: it stays text, and a number field refuses
  // it.
  const bool leading_zero = digits.size() > 1 && digits[0] == '0' && AllDigits(digits.substr(0, 2));
  if (leading_zero || !IsDecimal(digits)) return text;
  const std::string_view unsigned_or_negative = negative ? std::string_view(text) : digits;
  if (AllDigits(digits)) {
    std::int64_t integer = 0;
    if (Converts(unsigned_or_negative, integer)) return integer;
  }
  double number = 0;
  if (!Converts(unsigned_or_negative, number) || !std::isfinite(number)) {
    throw Refusal{mark, absl::StrCat("the number ", text, " is beyond what a double holds")};
  }
  return number;
}

// Builds the value from the parser's events. Confined to Parse.
class Builder final : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) {
      throw Refusal{mark,
                    "a second document, or text after the end of the first; write one job a file"};
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    RefuseAnchor(mark, anchor);
    if (ExpectsKey()) throw Refusal{mark, "an empty key; write the field's name before the colon"};
    Place(mark, nullptr);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Refusal{mark, "an alias (*); write the value out where it is needed"};
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    const bool plain = tag == "?";
    if (ExpectsKey()) return SetKey(mark, value, plain);
    Place(mark, plain ? ValueOf(value, mark) : Json(value));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Json::array());
  }
  void OnSequenceEnd() override { levels_.pop_back(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(mark, tag, anchor, Json::object());
  }
  void OnMapEnd() override { levels_.pop_back(); }

  void OnAnchor(const YAML::Mark& mark, const std::string&) override { RefuseAnchor(mark, 1); }

  Json Take() { return std::move(root_); }

 private:
  struct Level {
    Json* value;
    std::string key;
    bool has_key = false;
  };

  static void RefuseAnchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor == YAML::NullAnchor) return;
    throw Refusal{mark, "an anchor (&); write the value out where it is needed"};
  }

  static void RefuseTag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return;
    throw Refusal{mark, absl::StrCat("the tag ", tag.substr(0, 80), "; leave tags out")};
  }

  bool ExpectsKey() const {
    return !levels_.empty() && levels_.back().value->is_object() && !levels_.back().has_key;
  }

  void SetKey(const YAML::Mark& mark, const std::string& key, bool plain) {
    Level& level = levels_.back();
    if (plain && key == "<<") {
      throw Refusal{mark, "a merge key (<<); write the fields out where they are needed"};
    }
    if (level.value->contains(key)) {
      throw Refusal{mark, absl::StrCat("the key \"", key.substr(0, 80),
                                       "\" stands twice; leave one of them")};
    }
    level.key = key;
    level.has_key = true;
  }

  Json* Place(const YAML::Mark& mark, Json value) {
    if (++nodes_ > kLimits.nodes) {
      throw Refusal{mark, absl::StrCat("more than ", kLimits.nodes, " values")};
    }
    if (levels_.empty()) return &(root_ = std::move(value));
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    level.has_key = false;
    return &((*level.value)[level.key] = std::move(value));
  }

  void Open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json container) {
    RefuseAnchor(mark, anchor);
    RefuseTag(mark, tag);
    if (ExpectsKey())
      throw Refusal{mark,
                    "a list or an object that is never closed, or one as a key; keys are text"};
    if (levels_.size() >= kLimits.depth) {
      throw Refusal{mark, absl::StrCat("nested more than ", kLimits.depth, " deep")};
    }
    levels_.push_back({Place(mark, std::move(container)), "", false});
  }

  Json root_;
  std::vector<Level> levels_;
  std::size_t nodes_ = 0;
  int documents_ = 0;
};

absl::Status CheckText(std::string_view text) {
  if (text.size() > kLimits.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("YAML of ", text.size(), " bytes; at most ", kLimits.bytes, " are read"));
  }
  if (!json::IsUtf8(text)) return absl::InvalidArgumentError("not UTF-8; save the file as UTF-8");
  std::size_t line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (static_cast<unsigned char>(c) >= 0x20U || c == '\n' || c == '\r' || c == '\t') continue;
    return absl::InvalidArgumentError(absl::StrCat("line ", line, ": a control character"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadAll(std::istream& stream, const std::string& name) {
  const std::size_t most = json::Limits().bytes + 1;
  std::string text(most, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(most));
  if (stream.bad()) return absl::InvalidArgumentError(absl::StrCat(name, ": cannot be read"));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

absl::StatusOr<std::string> ReadText(const std::string& path) {
  if (path == "-") return ReadAll(std::cin, "standard input");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  // A directory opens, and only reading it fails.
  if (!file || (file.peek() == std::ifstream::traits_type::eof() && errno != 0)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": cannot be read: ", std::generic_category().message(errno)));
  }
  file.clear();
  return ReadAll(file, path);
}

}  // namespace

absl::StatusOr<Json> Parse(std::string_view text) {
  if (absl::Status status = CheckText(text); !status.ok()) return status;
  Builder builder;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      return absl::InvalidArgumentError("there is nothing in it; write a job");
    }
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refusal& refusal) {
    return absl::InvalidArgumentError(absl::StrCat(Place(refusal.mark), refusal.message));
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(Place(error.mark), "not valid YAML: ", error.msg));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("not valid YAML: ", error.what()));
  }
  return builder.Take();
}

absl::StatusOr<Json> ReadJobFile(const std::string& path) {
  auto text = ReadText(path);
  if (!text.ok()) return text.status();
  const bool is_json = path.size() >= 5 && path.compare(path.size() - 5, 5, ".json") == 0;
  auto value = is_json ? json::Parse(*text) : Parse(*text);
  if (value.ok() && value->is_null()) {
    value = absl::InvalidArgumentError("there is nothing in it; write a job");
  }
  if (value.ok()) return value;
  return absl::Status(value.status().code(),
                      absl::StrCat(path == "-" ? "standard input" : path, ": ",
                                   std::string(value.status().message())));
}

}  // namespace starling::yaml

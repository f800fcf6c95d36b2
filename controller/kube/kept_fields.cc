// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/kept_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace starling::kube {
namespace {

using Json = nlohmann::json;

bool Names(const KeptField& field, std::string_view key) {
  return field.name.ends_with("/*") ? key.starts_with(field.name.substr(0, field.name.size() - 1))
                                    : key == field.name;
}

const KeptField* Find(KeptFields fields, std::string_view key) {
  for (const KeptField& field : fields) {
    if (Names(field, key)) return &field;
  }
  return nullptr;
}

Json KeepInside(const Json& value, KeptFields fields) {
  if (fields.empty() || !value.is_array()) return KeepFields(value, fields);
  Json kept = Json::array();
  for (const Json& item : value) kept.push_back(KeepFields(item, fields));
  return kept;
}

// Copies a text value by value. Recurses as deep as the table, whatever the text. Confined to one
// call.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  // The next value, with `fields` kept of it (empty: all). False: there is none.
  bool Keep(KeptFields fields, bool in_list = false) {
    SkipSpace();
    if (fields.empty() || at_ == text_.size()) return KeepWhole();
    if (text_[at_] == '{') return KeepObject(fields);
    if (text_[at_] == '[' && !in_list) return KeepList(fields);
    return KeepWhole();
  }

  // All that was kept, and what follows the value.
  std::string Take() {
    kept_.append(text_.substr(at_));
    return std::move(kept_);
  }

 private:
  bool At(char c) const { return at_ < text_.size() && text_[at_] == c; }

  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool Expect(char c) {
    SkipSpace();
    if (!At(c)) return false;
    ++at_;
    return true;
  }

  bool SkipString() {
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\\') {
        ++at_;
      } else if (text_[at_] == '"') {
        ++at_;
        return true;
      }
    }
    return false;
  }

  bool SkipNested() {
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        if (!SkipString()) return false;
        continue;
      }
      ++at_;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) return true;
    }
    return false;
  }

  bool SkipWord() {
    const std::size_t begin = at_;
    at_ = std::min(text_.find_first_of(",]} \n\t\r", at_), text_.size());
    return at_ > begin;
  }

  bool Skip() {
    SkipSpace();
    if (At('"')) return SkipString();
    return At('{') || At('[') ? SkipNested() : SkipWord();
  }

  bool KeepWhole() {
    SkipSpace();
    const std::size_t begin = at_;
    if (!Skip()) return false;
    kept_.append(text_.substr(begin, at_ - begin));
    return true;
  }

  bool KeepMember(KeptFields fields, bool& first) {
    SkipSpace();
    const std::size_t begin = at_;
    if (!At('"') || !SkipString()) return false;
    const std::string_view quoted = text_.substr(begin, at_ - begin);
    if (!Expect(':')) return false;
    const KeptField* field = Find(fields, quoted.substr(1, quoted.size() - 2));
    if (field == nullptr) return Skip();
    if (!first) kept_ += ',';
    first = false;
    kept_.append(quoted) += ':';
    return Keep(field->inner);
  }

  // `one` takes one member or item; the brackets and commas are taken here.
  template <typename One>
  bool KeepAll(char close, const One& one) {
    kept_ += text_[at_++];
    SkipSpace();
    if (!At(close)) {
      do {
        if (!one()) return false;
      } while (Expect(','));
    }
    if (!Expect(close)) return false;
    kept_ += close;
    return true;
  }

  bool KeepObject(KeptFields fields) {
    bool first = true;
    return KeepAll('}', [&] { return KeepMember(fields, first); });
  }

  bool KeepList(KeptFields fields) {
    bool first = true;
    return KeepAll(']', [&] {
      if (!first) kept_ += ',';
      first = false;
      return Keep(fields, /*in_list=*/true);
    });
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string kept_;
};

}  // namespace

Json KeepFields(const Json& object, KeptFields fields) {
  if (fields.empty() || !object.is_object()) return object;
  Json kept = Json::object();
  for (const auto& [key, value] : object.items()) {
    const KeptField* field = Find(fields, key);
    if (field != nullptr) kept.emplace(key, KeepInside(value, field->inner));
  }
  return kept;
}

std::string KeepFieldsOfAnswer(std::string_view text, KeptFields fields) {
  std::vector<KeptField> all = {{"type"},    {"code"},   {"reason"},       {"message"},
                                {"details"}, {"object"}, {"items", fields}};
  all.insert(all.end(), fields.begin(), fields.end());
  std::vector<KeptField> event = all;
  event[5].inner = all;
  Scanner scanner(text);
  if (!scanner.Keep(event)) return std::string(text);
  return scanner.Take();
}

}  // namespace starling::kube

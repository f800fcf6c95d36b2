// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_path.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace starling::kube {

std::string PercentEncode(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte) || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte >> 4U];
      encoded += kDigits[byte & 15U];
    }
  }
  return encoded;
}

std::string GroupPath(const ResourceKind& kind) {
  return absl::StrCat(kind.group.empty() ? "/api/" : "/apis/", kind.ApiVersion());
}

std::string CollectionPath(const ResourceKind& kind, std::string_view ns) {
  const bool all = ns.empty() || !kind.namespaced;
  return absl::StrCat(GroupPath(kind), all ? "" : "/namespaces/", all ? "" : PercentEncode(ns), "/",
                      std::string(kind.plural));
}

std::string ObjectPath(const ResourceKind& kind, const ObjectKey& key,
                       std::string_view subresource) {
  return absl::StrCat(CollectionPath(kind, key.ns), "/", PercentEncode(key.name),
                      subresource.empty() ? "" : "/", std::string(subresource));
}

std::string Query(const Parameters& parameters) {
  std::string query;
  for (const auto& [name, value] : parameters) {
    if (value.empty()) continue;
    absl::StrAppend(&query, query.empty() ? "?" : "&", std::string(name), "=",
                    PercentEncode(value));
  }
  return query;
}

}  // namespace starling::kube

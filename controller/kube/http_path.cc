// SPDX-License-Identifier: Apache-2.0
#include "controller/kube/http_path.h"

#include "absl/strings/str_cat.h"
#include "common/http/message.h"

namespace starling::kube {

std::string GroupPath(const ResourceKind& kind) {
  return absl::StrCat(kind.group.empty() ? "/api/" : "/apis/", kind.ApiVersion());
}

std::string CollectionPath(const ResourceKind& kind, std::string_view ns) {
  const bool all = ns.empty() || !kind.namespaced;
  return absl::StrCat(GroupPath(kind), all ? "" : "/namespaces/",
                      all ? "" : http::PercentEncode(ns), "/", std::string(kind.plural));
}

std::string ObjectPath(const ResourceKind& kind, const ObjectKey& key,
                       std::string_view subresource) {
  return absl::StrCat(CollectionPath(kind, key.ns), "/", http::PercentEncode(key.name),
                      subresource.empty() ? "" : "/", std::string(subresource));
}

std::string Query(const Parameters& parameters) {
  std::string query;
  for (const auto& [name, value] : parameters) {
    if (value.empty()) continue;
    absl::StrAppend(&query, query.empty() ? "?" : "&", std::string(name), "=",
                    http::PercentEncode(value));
  }
  return query;
}

}  // namespace starling::kube

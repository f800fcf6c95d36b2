// SPDX-License-Identifier: Apache-2.0
// Where objects lie on an API server: paths and queries, percent-encoded. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "controller/kube/kube_client.h"

namespace starling::kube {

// "/api/v1" or "/apis/GROUP/VERSION".
std::string GroupPath(const ResourceKind& kind);
// Of all objects of a namespace, or of all namespaces if `ns` is empty.
std::string CollectionPath(const ResourceKind& kind, std::string_view ns);
std::string ObjectPath(const ResourceKind& kind, const ObjectKey& key,
                       std::string_view subresource = "");

using Parameters = std::vector<std::pair<std::string_view, std::string>>;
// "?a=b&c=d" of those that have a value, or nothing.
std::string Query(const Parameters& parameters);

}  // namespace starling::kube

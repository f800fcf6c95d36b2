// SPDX-License-Identifier: Apache-2.0
#include "controller/manager/namespaces.h"

#include <nlohmann/json.hpp>

#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::manager {

Namespaces::Namespaces(kube::KubeClient& client, const std::string& only)
    : client_(client),
      copy_(only.empty() ? std::make_unique<runtime::Informer>(client, kube::kNamespace,
                                                               runtime::InformerOptions())
                         : nullptr) {}

absl::StatusOr<std::string> Namespaces::UidOf(const std::string& ns) {
  if (copy_ != nullptr) {
    if (const runtime::Informer::Object known = copy_->Get({"", ns}); known != nullptr) {
      return kube::UidOf(*known);
    }
  }
  // One that has just been made is not in the copy yet.
  ASSIGN_OR_RETURN(const kube::Json found, client_.Get(kube::kNamespace, {"", ns}));
  return kube::UidOf(found);
}

}  // namespace starling::manager

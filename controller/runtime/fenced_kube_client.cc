// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/fenced_kube_client.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace starling::runtime {

absl::StatusOr<FencedKubeClient::Written> FencedKubeClient::Write(const kube::ResourceKind& kind,
                                                                  const kube::ObjectKey& key,
                                                                  std::string_view verb,
                                                                  const Call& call) {
  if (may_write_()) return call();
  return absl::FailedPreconditionError(absl::StrCat(std::string(verb), " of ",
                                                    std::string(kind.plural), " ", key.ToString(),
                                                    ": this process no longer leads"));
}

}  // namespace starling::runtime

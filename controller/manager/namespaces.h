// SPDX-License-Identifier: Apache-2.0
// The UIDs of a cluster's namespaces: what is kept of one's jobs is not shown in a later one of its
// name.
//
// Of all namespaces there is a copy, so that lists over all of them ask nobody. A service that may
// see one namespace alone asks for that one each time: only so its rights suffice.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "controller/kube/kube_client.h"
#include "controller/runtime/informer.h"

namespace starling::manager {

// Thread-safe.
class Namespaces {
 public:
  // `only`: the one namespace that may be seen; empty: all may. `client` must outlive it.
  Namespaces(kube::KubeClient& client, const std::string& only);

  // The copy, which somebody must run; null: there is none.
  runtime::Copying* copy() { return copy_.get(); }

  // NotFound: there is no such namespace, as the API server itself says. Other errors are its too.
  absl::StatusOr<std::string> UidOf(const std::string& ns);

 private:
  kube::KubeClient& client_;
  const std::unique_ptr<runtime::Informer> copy_;
};

}  // namespace starling::manager

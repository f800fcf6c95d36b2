// SPDX-License-Identifier: Apache-2.0
// What replicas of one service share by way of a Secret: its certificate, a key to sign with.
//
// Who first finds it missing or due writes it; the others see the conflict and take what is there.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/clock/clock.h"
#include "controller/admission/certificates.h"
#include "controller/kube/kube_client.h"

namespace starling::admission {

// The certificate in the Secret `key`, which is made where it is missing and renewed where it is
// due. `component` labels a Secret that is made. Errors: of the client.
absl::StatusOr<ServingCertificate> SharedCertificate(kube::KubeClient& client,
                                                     const clock::Clock& clock,
                                                     const kube::ObjectKey& key,
                                                     const CertificatePolicy& policy,
                                                     const std::string& component);

// 32 random bytes in the field `field` of the Secret `key`, which must be there.
absl::StatusOr<std::string> SharedKey(kube::KubeClient& client, const kube::ObjectKey& key,
                                      const std::string& field);

}  // namespace starling::admission

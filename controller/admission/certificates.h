// SPDX-License-Identifier: Apache-2.0
// The webhook's own certificates: what its Secret should hold, decided from what it holds.
//
// An authority of its own signs one serving leaf; the API server is told of the authority by the
// caBundle. Leaves are renewed a third of their life before they end, the authority too: for as
// long as the old one is good both stand in the bundle, so no replica that still serves the old
// leaf is refused. Pure functions over Secrets and a time; webhook.h reads and writes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::admission {

struct CertificatePolicy {
  std::vector<std::string> dns_names;  // of the Service: the first is what the API server asks for
  absl::Duration authority_life = absl::Hours(24) * 3650;
  absl::Duration leaf_life = absl::Hours(24) * 90;
};

// starling-webhook.starling-system.svc and its longer and shorter forms.
std::vector<std::string> ServiceNames(const std::string& service, const std::string& ns);

struct ServingCertificate {
  std::string certificate;  // PEM, of the leaf
  std::string key;          // PEM
  std::string bundle;       // PEM: all authorities that a client should accept, the newest first
};

// What `secret` (null: there is none) holds, if it is whole, ours to serve with and not yet due.
std::optional<ServingCertificate> CurrentCertificate(const nlohmann::json* secret,
                                                     const CertificatePolicy& policy,
                                                     absl::Time now);

// The data that the Secret should get (base64, as Secrets have it): tls.crt, tls.key, ca.crt,
// ca.key. What is still good of the old is kept.
absl::StatusOr<nlohmann::json> RenewedData(const nlohmann::json* secret,
                                           const CertificatePolicy& policy, absl::Time now);

}  // namespace starling::admission

// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/certificates.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "common/tls/tls.h"
#include "controller/kube/objects.h"
#include "nlohmann/json.hpp"

namespace starling::admission {
namespace {

using Json = nlohmann::json;

constexpr char kAuthorityName[] = "starling-webhook";

// A Secret's text by its key; "" where there is none or it is no base64.
std::string Data(const Json* secret, const char* key) {
  if (secret == nullptr) return "";
  std::string text;
  return absl::Base64Unescape(kube::StringAt(*secret, absl::StrCat("/data/", key)), &text) ? text
                                                                                           : "";
}

bool Due(const tls::Validity& validity, absl::Time now) {
  return now < validity.from || now >= validity.until - (validity.until - validity.from) / 3;
}

// The authority of the Secret, with which new leaves can be signed; nothing if it is none or due.
std::optional<tls::Authority> CurrentAuthority(const Json* secret, absl::Time now) {
  const std::string bundle = Data(secret, "ca.crt");
  const auto facts = tls::ReadCertificate(bundle);  // the newest comes first
  if (!facts.ok() || Due(facts->validity, now)) return std::nullopt;
  auto authority = tls::Authority::FromPem(bundle, Data(secret, "ca.key"));
  if (!authority.ok()) return std::nullopt;
  return *std::move(authority);
}

// Of a bundle, the first certificate's text.
std::string First(const std::string& bundle) {
  constexpr char kEnd[] = "-----END CERTIFICATE-----\n";
  const std::size_t end = bundle.find(kEnd);
  return end == std::string::npos ? bundle : bundle.substr(0, end + sizeof(kEnd) - 1);
}

}  // namespace

std::vector<std::string> ServiceNames(const std::string& service, const std::string& ns) {
  const std::string name = absl::StrCat(service, ".", ns);
  return {name + ".svc", name + ".svc.cluster.local", name};
}

std::optional<ServingCertificate> CurrentCertificate(const Json* secret,
                                                     const CertificatePolicy& policy,
                                                     absl::Time now) {
  const tls::Identity identity = {.certificate = Data(secret, "tls.crt"),
                                  .key = Data(secret, "tls.key"),
                                  .authority = Data(secret, "ca.crt")};
  const auto facts = tls::ReadCertificate(identity.certificate);
  if (!facts.ok() || Due(facts->validity, now) || !CurrentAuthority(secret, now)) {
    return std::nullopt;
  }
  if (facts->dns_names != policy.dns_names || !tls::Verify(identity, now).ok()) {
    return std::nullopt;
  }
  return ServingCertificate{identity.certificate, identity.key, identity.authority};
}

absl::StatusOr<Json> RenewedData(const Json* secret, const CertificatePolicy& policy,
                                 absl::Time now) {
  std::optional<tls::Authority> authority = CurrentAuthority(secret, now);
  std::string bundle = Data(secret, "ca.crt");
  if (!authority) {
    ASSIGN_OR_RETURN(authority, tls::Authority::Create(tls::Key::Generate(), kAuthorityName,
                                                       tls::ValidFrom(now, policy.authority_life)));
    // The one before stays in the bundle while it is good: leaves of it are still being served.
    const auto before = tls::ReadCertificate(bundle);
    const bool keep = before.ok() && before->authority && now < before->validity.until;
    bundle = authority->certificate() + (keep ? First(bundle) : "");
  }
  ASSIGN_OR_RETURN(const tls::Identity leaf,
                   authority->Issue({.dns_names = policy.dns_names,
                                     .usage = tls::Usage::kServer,
                                     .validity = tls::ValidFrom(now, policy.leaf_life)}));
  return Json{{"tls.crt", absl::Base64Escape(leaf.certificate)},
              {"tls.key", absl::Base64Escape(leaf.key)},
              {"ca.crt", absl::Base64Escape(bundle)},
              {"ca.key", absl::Base64Escape(authority->key().ToPem())}};
}

}  // namespace starling::admission

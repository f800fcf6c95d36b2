// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/credentials.h"

#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/objects.h"

namespace starling::resources {
namespace {

using kube::Json;

constexpr std::size_t kSeedBytes = 32;
constexpr absl::Duration kValidity = absl::Hours(24 * 3650);

// Who serves and who calls: the controller calls the coordinator, which calls its members.
constexpr std::pair<Role, tls::Usage> kRoles[] = {{Role::kCoordinator, tls::Usage::kBoth},
                                                  {Role::kWorker, tls::Usage::kServer},
                                                  {Role::kParameterServer, tls::Usage::kServer}};

bool Needs(Servers servers, Role role) {
  return role != Role::kParameterServer || servers == Servers::kSome;
}

absl::StatusOr<tls::Authority> AuthorityOf(std::string_view seed, std::string_view job_uid,
                                           absl::Time now) {
  if (seed.size() < kSeedBytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the controller's seed has ", seed.size(), " bytes instead of ", kSeedBytes,
                     "; is the Secret ", Text(kSeedSecret), " whole?"));
  }
  return tls::Authority::Create(
      tls::Key::Derive(seed, absl::StrCat("starling job authority ", Text(job_uid))),
      absl::StrCat("starling job ", Text(job_uid)), tls::ValidFrom(now, kValidity));
}

absl::StatusOr<tls::Identity> IssueTo(const tls::Authority& authority, std::string_view role,
                                      std::string_view job_uid, tls::Usage usage, absl::Time now) {
  return authority.Issue({.dns_names = {tls::PeerName(role, job_uid)},
                          .usage = usage,
                          .validity = tls::ValidFrom(now, kValidity)});
}

// The decoded value; empty: there is none.
std::string DataAt(const Json& secret, std::string_view key) {
  const auto data = secret.find("data");
  if (data == secret.end() || !data->is_object()) return "";
  const auto entry = data->find(Text(key));
  std::string value;
  if (entry == data->end() || !entry->is_string() ||
      !absl::Base64Unescape(entry->get_ref<const std::string&>(), &value)) {
    return "";
  }
  return value;
}

absl::StatusOr<std::string> SeedOf(const Json& secret) {
  std::string seed = DataAt(secret, kSeedKey);
  if (seed.size() >= kSeedBytes) return seed;
  return absl::InvalidArgumentError(absl::StrCat(
      "Secret ", kube::NamespaceOf(secret), "/", kube::NameOf(secret), ": data.", Text(kSeedKey),
      " must have ", kSeedBytes, " random bytes; delete the Secret to have it made anew"));
}

Json BuildSeedSecret(std::string_view ns) {
  return {{"apiVersion", "v1"},
          {"kind", "Secret"},
          {"metadata",
           {{"name", Text(kSeedSecret)},
            {"namespace", Text(ns)},
            {"labels",
             {{"app.kubernetes.io/name", "starling"},
              {"app.kubernetes.io/managed-by", "starling-controller"}}}}},
          {"type", "Opaque"},
          {"immutable", true},
          {"data", {{Text(kSeedKey), absl::Base64Escape(bytes::RandomBytes(kSeedBytes))}}}};
}

}  // namespace

std::string DataPlaneKey(std::string_view seed, std::string_view job_uid) {
  const std::string key =
      tls::DeriveBytes(seed, absl::StrCat("starling job data plane ", Text(job_uid)), 32);
  return bytes::ToHex(std::span(reinterpret_cast<const std::uint8_t*>(key.data()), key.size()));
}

absl::StatusOr<JobCredentials> MakeJobCredentials(std::string_view seed, std::string_view job_uid,
                                                  absl::Time now, Servers servers) {
  ASSIGN_OR_RETURN(const tls::Authority authority, AuthorityOf(seed, job_uid, now));
  JobCredentials credentials;
  credentials.data_plane_key = DataPlaneKey(seed, job_uid);
  credentials.authority = authority.certificate();
  for (const auto& [role, usage] : kRoles) {
    if (!Needs(servers, role)) continue;
    ASSIGN_OR_RETURN(credentials.leaves[role],
                     IssueTo(authority, RoleName(role), job_uid, usage, now));
  }
  return credentials;
}

absl::StatusOr<tls::Identity> MakeControllerIdentity(std::string_view seed,
                                                     std::string_view job_uid, absl::Time now) {
  ASSIGN_OR_RETURN(const tls::Authority authority, AuthorityOf(seed, job_uid, now));
  return IssueTo(authority, "controller", job_uid, tls::Usage::kClient, now);
}

bool SecretFits(const Json& secret, std::string_view seed, std::string_view job_uid,
                Servers servers) {
  if (!secret.is_object() || seed.size() < kSeedBytes) return false;
  for (const auto& [role, usage] : kRoles) {
    if (!Needs(servers, role)) continue;
    if (DataAt(secret, CertificateKey(role)).empty()) return false;
    if (DataAt(secret, PrivateKeyKey(role)).empty()) return false;
  }
  const std::string key = DataAt(secret, kSecretKey);
  const auto raw = [](const std::string& text) {
    return std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  const std::string expected = DataPlaneKey(seed, job_uid);
  return !DataAt(secret, kAuthorityKey).empty() &&
         bytes::ConstantTimeEqual(raw(key), raw(expected));
}

absl::StatusOr<std::string> EnsureSeed(kube::KubeClient& client, std::string_view ns) {
  const kube::ObjectKey key{Text(ns), Text(kSeedSecret)};
  absl::StatusOr<Json> secret = client.Get(kube::kSecret, key);
  if (absl::IsNotFound(secret.status())) {
    secret = client.Create(kube::kSecret, BuildSeedSecret(ns));
    if (absl::IsAlreadyExists(secret.status())) secret = client.Get(kube::kSecret, key);
  }
  RETURN_IF_ERROR(secret.status());
  return SeedOf(*secret);
}

}  // namespace starling::resources

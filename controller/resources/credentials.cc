// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/credentials.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "controller/kube/kube_client.h"
#include "controller/kube/messages.h"

namespace starling::resources {
namespace {

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

// Empty: there is none.
std::string DataAt(const kubernetes::Secret& secret, std::string_view key) {
  const auto entry = secret.data().find(Text(key));
  return entry == secret.data().end() ? std::string() : entry->second;
}

absl::StatusOr<std::string> SeedOf(const kubernetes::Secret& secret) {
  std::string seed = DataAt(secret, kSeedKey);
  if (seed.size() >= kSeedBytes) return seed;
  return absl::InvalidArgumentError(absl::StrCat(
      "Secret ", kube::NamespaceOf(secret), "/", kube::NameOf(secret), ": data.", Text(kSeedKey),
      " must have ", kSeedBytes, " random bytes; delete the Secret to have it made anew"));
}

kubernetes::Secret BuildSeedSecret(std::string_view ns) {
  kubernetes::Secret secret;
  secret.mutable_metadata()->set_name(Text(kSeedSecret));
  secret.mutable_metadata()->set_ns(Text(ns));
  auto& labels = *secret.mutable_metadata()->mutable_labels();
  labels["app.kubernetes.io/name"] = "starling";
  labels["app.kubernetes.io/managed-by"] = "starling-controller";
  secret.set_type("Opaque");
  secret.set_immutable(true);
  (*secret.mutable_data())[Text(kSeedKey)] = bytes::RandomBytes(kSeedBytes);
  return secret;
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

bool SecretFits(const kubernetes::Secret& secret, std::string_view seed, std::string_view job_uid,
                Servers servers) {
  if (seed.size() < kSeedBytes) return false;
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
  auto secret = kube::Read<kubernetes::Secret>(client, key);
  if (absl::IsNotFound(secret.status())) {
    const absl::Status made = client.CreateMessage(kube::kSecret, BuildSeedSecret(ns)).status();
    if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
    secret = kube::Read<kubernetes::Secret>(client, key);
  }
  RETURN_IF_ERROR(secret.status());
  return SeedOf(**secret);
}

}  // namespace starling::resources

// SPDX-License-Identifier: Apache-2.0
#include "controller/admission/shared_secret.h"

#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"

namespace starling::admission {
namespace {

using kube::Json;

constexpr int kSecretTries = 5;  // of a write that another replica was faster with
constexpr std::size_t kSharedKeyBytes = 32;

// Of type Opaque, because the type of an existing Secret cannot be changed to kubernetes.io/tls.
Json NewSecret(const kube::ObjectKey& key, const std::string& component) {
  return {
      {"apiVersion", "v1"},
      {"kind", "Secret"},
      {"type", "Opaque"},
      {"metadata",
       {{"name", key.name},
        {"namespace", key.ns},
        {"labels",
         {{"app.kubernetes.io/name", "starling"}, {"app.kubernetes.io/component", component}}}}}};
}

}  // namespace

absl::StatusOr<ServingCertificate> SharedCertificate(kube::KubeClient& client,
                                                     const clock::Clock& clock,
                                                     const kube::ObjectKey& key,
                                                     const CertificatePolicy& policy,
                                                     const std::string& component) {
  absl::Status last;
  for (int i = 0; i < kSecretTries; ++i) {
    const auto found = client.Get(kube::kSecret, key);
    if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
    const Json* secret = found.ok() ? &*found : nullptr;
    if (auto current = CurrentCertificate(secret, policy, clock.WallNow())) return *current;
    ASSIGN_OR_RETURN(Json data, RenewedData(secret, policy, clock.WallNow()));
    Json wanted = secret != nullptr ? *secret : NewSecret(key, component);
    wanted["data"].update(data);
    const auto written = secret != nullptr ? client.Update(kube::kSecret, wanted)
                                           : client.Create(kube::kSecret, wanted);
    if (written.ok()) {
      log::Info(component + " certificate written",
                {{"name", key.ToString()}, {"new", secret == nullptr}});
      if (auto current = CurrentCertificate(&*written, policy, clock.WallNow())) return *current;
      return absl::InternalError(absl::StrCat("the certificates of ", component,
                                              " are not good right after their making"));
    }
    last = written.status();
    // Another replica was faster: we use what it wrote.
    if (!absl::IsAborted(last) && !absl::IsAlreadyExists(last)) return last;
  }
  return last;
}

absl::StatusOr<std::string> SharedKey(kube::KubeClient& client, const kube::ObjectKey& key,
                                      const std::string& field) {
  absl::Status last;
  for (int i = 0; i < kSecretTries; ++i) {
    ASSIGN_OR_RETURN(Json secret, client.Get(kube::kSecret, key));
    std::string bytes;
    if (absl::Base64Unescape(kube::StringAt(secret, "/data/" + field), &bytes) &&
        bytes.size() >= kSharedKeyBytes) {
      return bytes;
    }
    secret["data"][field] = absl::Base64Escape(bytes::RandomBytes(kSharedKeyBytes));
    last = client.Update(kube::kSecret, secret).status();
    // Written or not, the next look says what all replicas have.
    if (!last.ok() && !absl::IsAborted(last)) return last;
  }
  return last;
}

}  // namespace starling::admission

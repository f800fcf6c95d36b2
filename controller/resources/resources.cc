// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/resources.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/net/ports.h"
#include "controller/resources/credentials.h"
#include "controller/resources/objects.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::resources {

std::vector<Role> RolesOf(const v1alpha1::TrainingJobSpec& resolved) {
  if (resolved.workload().has_container()) return {Role::kWorker};
  if (!HasServers(resolved)) return {Role::kCoordinator, Role::kWorker};
  return {Role::kCoordinator, Role::kParameterServer, Role::kWorker};
}

bool HasServers(const v1alpha1::TrainingJobSpec& resolved) {
  return resolved.exchange().has_parameter_server() && !resolved.workload().has_container();
}

Json Owned(const JobIdentity& job, std::string_view api_version, std::string_view kind,
           std::string name) {
  return {{"apiVersion", Text(api_version)},
          {"kind", Text(kind)},
          {"metadata",
           {{"name", std::move(name)},
            {"namespace", job.ns},
            {"labels",
             {{Text(kJobLabel), job.name},
              {"app.kubernetes.io/name", "starling"},
              {"app.kubernetes.io/instance", job.name},
              {"app.kubernetes.io/managed-by", "starling-controller"}}},
            {"ownerReferences", Json::array({{{"apiVersion", "starling.dev/v1alpha1"},
                                              {"kind", "TrainingJob"},
                                              {"name", job.name},
                                              {"uid", job.uid},
                                              {"controller", true},
                                              {"blockOwnerDeletion", true}}})}}}};
}

Json BuildService(const JobIdentity& job) {
  Json service = Owned(job, "v1", "Service", ServiceName(job.name));
  service["spec"] = {
      {"clusterIP", "None"},
      // Pods' addresses are of one family or of both: as many as the cluster has are told.
      {"ipFamilyPolicy", "PreferDualStack"},
      {"publishNotReadyAddresses", true},
      {"selector", {{Text(kJobLabel), job.name}}},
      {"ports",
       Json::array({{{"name", "metrics"}, {"port", net::kMetricsPort}, {"protocol", "TCP"}}})}};
  return service;
}

Json BuildBudget(const JobIdentity& job, Role role) {
  Json budget = Owned(job, "policy/v1", "PodDisruptionBudget", BudgetName(job.name, role));
  budget["spec"] = {
      {role == Role::kWorker ? "maxUnavailable" : "minAvailable", 1},
      {"unhealthyPodEvictionPolicy", "AlwaysAllow"},
      {"selector",
       {{"matchLabels", {{Text(kJobLabel), job.name}, {Text(kRoleLabel), Text(RoleName(role))}}}}}};
  return budget;
}

// Neither this nor the configuration may be `immutable`: a kubelet would not look at it again, and
// give the pods of the next job of that name what was the last one's.
Json BuildSecret(const JobIdentity& job, const JobCredentials& credentials) {
  Json secret = Owned(job, "v1", "Secret", SecretName(job.name));
  secret["type"] = "Opaque";
  Json& data = secret["data"];
  data[Text(kSecretKey)] = absl::Base64Escape(credentials.data_plane_key);
  data[Text(kAuthorityKey)] = absl::Base64Escape(credentials.authority);
  for (const auto& [role, leaf] : credentials.leaves) {
    data[CertificateKey(role)] = absl::Base64Escape(leaf.certificate);
    data[PrivateKeyKey(role)] = absl::Base64Escape(leaf.key);
  }
  return secret;
}

Json BuildConfig(const JobIdentity& job, std::int64_t generation, std::string_view given_json,
                 std::string_view resolved_json) {
  Json config = Owned(job, "v1", "ConfigMap", ConfigName(job.name, generation));
  config["data"] = {{Text(kSpecKey), Text(resolved_json)}, {Text(kGivenKey), Text(given_json)}};
  return config;
}

}  // namespace starling::resources

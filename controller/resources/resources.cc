// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/resources.h"

#include <utility>

#include "api/spec/trace_request.h"
#include "common/net/ports.h"
#include "controller/resources/credentials.h"
#include "controller/resources/objects.h"
#include "kubernetes/objects.pb.h"
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

kubernetes::ObjectMeta Owned(const JobIdentity& job, std::string name) {
  kubernetes::ObjectMeta metadata;
  metadata.set_name(std::move(name));
  metadata.set_ns(job.ns);
  auto& labels = *metadata.mutable_labels();
  labels[Text(kJobLabel)] = job.name;
  labels["app.kubernetes.io/name"] = "starling";
  labels["app.kubernetes.io/instance"] = job.name;
  labels["app.kubernetes.io/managed-by"] = "starling-controller";
  kubernetes::OwnerReference& owner = *metadata.add_owner_references();
  owner.set_api_version("starling.dev/v1alpha1");
  owner.set_kind("TrainingJob");
  owner.set_name(job.name);
  owner.set_uid(job.uid);
  owner.set_controller(true);
  owner.set_block_owner_deletion(true);
  return metadata;
}

kubernetes::Service BuildService(const JobIdentity& job) {
  kubernetes::Service service;
  *service.mutable_metadata() = Owned(job, ServiceName(job.name));
  kubernetes::ServiceSpec& spec = *service.mutable_spec();
  spec.set_cluster_ip("None");
  // Names lead to addresses of one family or of both, as the pods have them.
  spec.set_ip_family_policy("PreferDualStack");
  spec.set_publish_not_ready_addresses(true);
  kubernetes::ServicePort& port = *spec.add_ports();
  port.set_name("metrics");
  port.set_port(net::kMetricsPort);
  port.set_protocol("TCP");
  return service;
}

kubernetes::PodDisruptionBudget BuildBudget(const JobIdentity& job, Role role) {
  kubernetes::PodDisruptionBudget budget;
  *budget.mutable_metadata() = Owned(job, BudgetName(job.name, role));
  kubernetes::PodDisruptionBudgetSpec& spec = *budget.mutable_spec();
  kubernetes::IntOrString& limit =
      role == Role::kWorker ? *spec.mutable_max_unavailable() : *spec.mutable_min_available();
  limit.set_type(0);
  limit.set_int_val(1);
  spec.set_unhealthy_pod_eviction_policy("AlwaysAllow");
  auto& labels = *spec.mutable_selector()->mutable_match_labels();
  labels[Text(kJobLabel)] = job.name;
  labels[Text(kRoleLabel)] = Text(RoleName(role));
  return budget;
}

// Neither this nor the configuration may be `immutable`: a kubelet would not look at it again, and
// give the pods of the next job of that name what was the last one's.
kubernetes::Secret BuildSecret(const JobIdentity& job, const JobCredentials& credentials) {
  kubernetes::Secret secret;
  *secret.mutable_metadata() = Owned(job, SecretName(job.name));
  secret.set_type("Opaque");
  auto& data = *secret.mutable_data();
  data[Text(kSecretKey)] = credentials.data_plane_key;
  data[Text(kAuthorityKey)] = credentials.authority;
  for (const auto& [role, leaf] : credentials.leaves) {
    data[CertificateKey(role)] = leaf.certificate;
    data[PrivateKeyKey(role)] = leaf.key;
  }
  return secret;
}

kubernetes::ConfigMap BuildTrace(const JobIdentity& job, std::string_view request,
                                 std::string_view packed) {
  kubernetes::ConfigMap config;
  *config.mutable_metadata() = Owned(job, spec::TraceConfigName(job.name));
  (*config.mutable_metadata()->mutable_annotations())[spec::kTraceRequest] = Text(request);
  (*config.mutable_binary_data())[spec::kTraceKey] = Text(packed);
  return config;
}

kubernetes::ConfigMap BuildConfig(const JobIdentity& job, std::int64_t generation,
                                  std::string_view given_json, std::string_view resolved_json) {
  kubernetes::ConfigMap config;
  *config.mutable_metadata() = Owned(job, ConfigName(job.name, generation));
  (*config.mutable_data())[Text(kSpecKey)] = Text(resolved_json);
  (*config.mutable_data())[Text(kGivenKey)] = Text(given_json);
  return config;
}

}  // namespace starling::resources

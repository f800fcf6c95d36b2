// SPDX-License-Identifier: Apache-2.0
// What the objects of a job are called, how they are labelled, and where things lie in its pods.
//
// Names are derived, never stored: whoever knows the job knows the names of all that belongs to it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace starling::resources {

// A copy of `view`: JSON values and what is put together from them need strings.
std::string Text(std::string_view view);

// To add a role: here, in kEveryRole, in the tables of names.cc, credentials.cc and pod.cc.
enum class Role { kCoordinator, kWorker, kParameterServer };
inline constexpr std::array kEveryRole = {Role::kCoordinator, Role::kWorker,
                                          Role::kParameterServer};

// Members hold what is trained and are kept together by the coordinator.
inline constexpr bool IsMember(Role role) { return role != Role::kCoordinator; }

inline constexpr std::string_view kJobLabel = "starling.dev/job";
inline constexpr std::string_view kRoleLabel = "starling.dev/role";
inline constexpr std::string_view kIndexLabel = "starling.dev/index";
inline constexpr std::string_view kGenerationAnnotation = "starling.dev/generation";
// Of a job: the trace that it belongs to, as the header traceparent names it (common/trace).
inline constexpr std::string_view kTraceparentAnnotation = "starling.dev/traceparent";

inline constexpr std::string_view kContainer = "trainer";
inline constexpr std::string_view kSpecFolder = "/etc/starling/job";
inline constexpr std::string_view kSpecKey = "spec.json";
inline constexpr std::string_view kGivenKey = "given.json";
inline constexpr std::string_view kSecretFolder = "/etc/starling/secret";
inline constexpr std::string_view kSecretKey = "data-plane";
inline constexpr std::string_view kAuthorityKey = "ca.crt";
inline constexpr std::string_view kRunFolder = "/run/starling";    // the supervisor's, in each pod
inline constexpr std::string_view kImageFolder = "/opt/starling";  // relative URIs start here
inline constexpr std::string_view kClusterJobFolder = "/var/lib/starling/job";

// Where the controller lives in a cluster, and what it derives its jobs' credentials from.
inline constexpr std::string_view kControllerNamespace = "starling-system";
inline constexpr std::string_view kSeedSecret = "starling-controller-ca";
inline constexpr std::string_view kSeedKey = "seed";

// Which job an object belongs to. The UID tells it from an earlier job of the same name.
struct JobIdentity {
  std::string ns;
  std::string name;
  std::string uid;
  // The trace that it belongs to (common/trace), as its annotation says; empty: none.
  std::string traceparent = {};
};

// In labels, pod names and certificates: parameter-server.
std::string_view RoleName(Role role);
// In spec.replicaSpecs and status.replicaStatuses: parameterServer.
std::string_view RoleField(Role role);
// The program in the image: starling-server.
std::string_view RoleProgram(Role role);
// In reasons of incidents: ParameterServer.
std::string_view RoleWord(Role role);
std::optional<Role> ParseRole(std::string_view name);

std::string PodName(std::string_view job, Role role, std::int64_t index);
std::string SecretName(std::string_view job);
std::string ServiceName(std::string_view job);
std::string BudgetName(std::string_view job, Role role);  // of a PodDisruptionBudget
std::string ConfigName(std::string_view job, std::int64_t generation);
// The generation in a name that ConfigName made; nothing if it did not.
std::optional<std::int64_t> ParseConfigName(std::string_view job, std::string_view name);

// The keys of a role's leaf in the job's Secret, such as worker.crt and worker.key.
std::string CertificateKey(Role role);
std::string PrivateKeyKey(Role role);

// Selects everything of the job, or its pods of one role.
std::string JobSelector(std::string_view job);
std::string RoleSelector(std::string_view job, Role role);

// The job's folder under the folder of all jobs: <namespace>/<name>-<first 8 characters of UID>.
std::string JobFolder(std::string_view jobs_folder, const JobIdentity& job);

}  // namespace starling::resources

// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/names.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace starling::resources {
namespace {

struct Names {
  std::string_view name, field, program, word;
};

constexpr Names NamesOf(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return {"coordinator", "coordinator", "starling-coordinator", "Coordinator"};
    case Role::kWorker:
      return {"worker", "worker", "starling-worker", "Worker"};
    case Role::kParameterServer:
      return {"parameter-server", "parameterServer", "starling-server", "ParameterServer"};
  }
  return {};
}

}  // namespace

std::string Text(std::string_view view) { return std::string(view); }

std::string_view RoleName(Role role) { return NamesOf(role).name; }
std::string_view RoleField(Role role) { return NamesOf(role).field; }
std::string_view RoleProgram(Role role) { return NamesOf(role).program; }
std::string_view RoleWord(Role role) { return NamesOf(role).word; }

std::optional<Role> ParseRole(std::string_view name) {
  for (const Role role : kEveryRole) {
    if (name == RoleName(role)) return role;
  }
  return std::nullopt;
}

std::string PodName(std::string_view job, Role role, std::int64_t index) {
  return absl::StrCat(Text(job), "-", Text(RoleName(role)), "-", index);
}

std::string SecretName(std::string_view job) { return Text(job) + "-secret"; }

std::string ServiceName(std::string_view job) { return Text(job); }

std::string BudgetName(std::string_view job, Role role) {
  return role == Role::kWorker ? Text(job) : absl::StrCat(Text(job), "-", Text(RoleName(role)));
}

std::string CertificateKey(Role role) { return Text(RoleName(role)) + ".crt"; }

std::string PrivateKeyKey(Role role) { return Text(RoleName(role)) + ".key"; }

std::string ConfigName(std::string_view job, std::int64_t generation) {
  return absl::StrCat(Text(job), "-resolved-", generation);
}

std::optional<std::int64_t> ParseConfigName(std::string_view job, std::string_view name) {
  const std::string prefix = Text(job) + "-resolved-";
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t generation = 0;
  if (!absl::SimpleAtoi(Text(name.substr(prefix.size())), &generation) || generation < 0) {
    return std::nullopt;
  }
  return generation;
}

std::string JobSelector(std::string_view job) {
  return absl::StrCat(Text(kJobLabel), "=", Text(job));
}

std::string RoleSelector(std::string_view job, Role role) {
  return absl::StrCat(JobSelector(job), ",", Text(kRoleLabel), "=", Text(RoleName(role)));
}

std::string JobFolder(std::string_view jobs_folder, const JobIdentity& job) {
  return absl::StrCat(Text(jobs_folder), "/", job.ns, "/", job.name, "-", job.uid.substr(0, 8));
}

}  // namespace starling::resources

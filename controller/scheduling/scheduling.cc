// SPDX-License-Identifier: Apache-2.0
#include "controller/scheduling/scheduling.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "controller/kube/objects.h"
#include "controller/scheduling/kueue.h"

namespace starling::scheduling {
namespace {

// Gang schedulers and queues are installed rarely; asking costs a request.
constexpr absl::Duration kAskAgain = absl::Minutes(1);
// A change of the Workload is heard of by its watch; this is for a watch that is not there.
constexpr absl::Duration kLookAgain = absl::Seconds(30);
constexpr absl::Duration kAfterWrite = absl::Seconds(1);

absl::StatusOr<std::optional<Json>> GetIfThere(kube::KubeClient& client,
                                               const kube::ResourceKind& kind,
                                               const kube::ObjectKey& key) {
  absl::StatusOr<Json> object = client.Get(kind, key);
  if (absl::IsNotFound(object.status())) return std::optional<Json>();
  RETURN_IF_ERROR(object.status());
  return std::optional<Json>(*std::move(object));
}

Gang GangOf(const JobFacts& facts, const Options& options) {
  Gang gang{.job = facts.job,
            .owner = facts.owner,
            .least = 0,
            .queue = facts.queue,
            .priority_class = facts.priority_class,
            .scheduler_name = options.gang_scheduler_name,
            .timeout_seconds = facts.timeout_seconds};
  for (const RoleFacts& role : facts.roles) {
    const bool workers = role.role == resources::Role::kWorker;
    const std::int64_t least = workers ? facts.min_available.value_or(role.least) : role.least;
    gang.least += std::min(least, role.wanted);
  }
  gang.least = std::max<std::int64_t>(gang.least, 1);
  return gang;
}

void AddMap(Json& parent, const char* field, const Json& more) {
  if (!more.is_object() || more.empty()) return;
  if (!parent[field].is_object()) parent[field] = Json::object();
  parent[field].update(more);
}

void AddPatch(Json& pod, const Json& patch) {
  AddMap(pod["metadata"], "labels", kube::At(patch, "/metadata/labels"));
  AddMap(pod["metadata"], "annotations", kube::At(patch, "/metadata/annotations"));
  Json& spec = pod["spec"];
  for (const auto& [field, value] : kube::At(patch, "/spec").items()) {
    if (field == "nodeSelector") {
      AddMap(spec, "nodeSelector", value);
    } else if (field == "tolerations") {
      for (const Json& toleration : value) {
        Json& list = spec["tolerations"];
        if (!list.is_array()) list = Json::array();
        if (std::find(list.begin(), list.end(), toleration) == list.end()) {
          list.push_back(toleration);
        }
      }
    } else if (!spec.contains(field) || spec[field].is_null()) {
      spec[field] = value;
    }
  }
}

std::string Ignored(const std::vector<std::string>& fields, const std::string& why) {
  if (fields.empty()) return "";
  return absl::StrCat("runPolicy.schedulingPolicy: ", absl::StrJoin(fields, ", "),
                      fields.size() == 1 ? " is" : " are", " ignored: ", why);
}

void AddWarning(const std::string& warning, Verdict& verdict) {
  if (warning.empty()) return;
  absl::StrAppend(&verdict.warning, verdict.warning.empty() ? "" : "; ", warning);
}

}  // namespace

std::string IgnoredPolicy(const JobFacts& facts, const std::string& why, const GangDriver* driver) {
  std::vector<std::string> fields;
  if (!facts.queue.empty() && (driver == nullptr || !driver->has_queues)) {
    fields.emplace_back("queue");
  }
  if (facts.min_available.has_value() && driver == nullptr) fields.emplace_back("minAvailable");
  if (facts.timeout_seconds.has_value() && (driver == nullptr || !driver->has_timeout)) {
    fields.emplace_back("scheduleTimeoutSeconds");
  }
  return Ignored(fields, why);
}

std::string IgnoredOnOneMachine(const JobFacts& facts) {
  std::vector<std::string> fields;
  if (!facts.queue.empty()) fields.emplace_back("queue");
  if (!facts.priority_class.empty()) fields.emplace_back("priorityClass");
  if (facts.min_available.has_value()) fields.emplace_back("minAvailable");
  if (facts.timeout_seconds.has_value()) fields.emplace_back("scheduleTimeoutSeconds");
  return Ignored(fields, "on one machine all processes start at once, and nothing schedules them");
}

Json Decorate(const Plan& plan, resources::Role role, Json pod) {
  AddPatch(pod, plan.pod_patch);
  const auto found = plan.role_patches.find(role);
  if (found != plan.role_patches.end()) AddPatch(pod, found->second);
  return pod;
}

std::vector<kube::ResourceKind> Scheduling::Watched() { return {kube::kKueueWorkload}; }

absl::StatusOr<bool> Scheduling::Serves(const kube::ResourceKind& kind) {
  const std::string name = absl::StrCat(kind.ApiVersion(), "/", std::string(kind.plural));
  {
    sync::MutexLock lock(mutex_);
    const auto found = known_.find(name);
    if (found != known_.end() && clock_.Now() - found->second.asked < kAskAgain) {
      return found->second.served;
    }
  }
  ASSIGN_OR_RETURN(const bool served, client_.Serves(kind));
  sync::MutexLock lock(mutex_);
  known_[name] = {.served = served, .asked = clock_.Now()};
  return served;
}

absl::Status Scheduling::LookAtGang(const JobFacts& facts, Plan& plan) {
  if (facts.outcome != Outcome::kNone) return absl::OkStatus();
  // Kubernetes' own: it needs no gang scheduler.
  if (!facts.priority_class.empty()) {
    plan.pod_patch["spec"]["priorityClassName"] = facts.priority_class;
  }
  absl::StatusOr<std::optional<GangDriver>> driver = SelectGangDriver(
      options_.gang_scheduler, [this](const kube::ResourceKind& kind) { return Serves(kind); });
  if (absl::IsFailedPrecondition(driver.status())) {
    AddWarning(std::string(driver.status().message()), plan.verdict);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(driver.status());
  if (!driver->has_value()) {
    AddWarning(IgnoredPolicy(facts, options_.gang_scheduler == "none"
                                        ? "the controller runs with --gang-scheduler=none"
                                        : "no gang scheduler is installed here"),
               plan.verdict);
    return absl::OkStatus();
  }
  AddWarning(IgnoredPolicy(facts,
                           absl::StrCat("the gang scheduler ", std::string((*driver)->name),
                                        " has nothing of the kind"),
                           &**driver),
             plan.verdict);
  const Gang gang = GangOf(facts, options_);
  plan.pod_patch.merge_patch((*driver)->pod_patch(gang));
  const kube::ResourceKind kind = (*driver)->kind;
  const kube::ObjectKey key{facts.job.ns, facts.job.name};
  Json group = (*driver)->group(gang);
  ASSIGN_OR_RETURN(const std::optional<Json> there, GetIfThere(client_, kind, key));
  if (!there.has_value()) {
    plan.writes.push_back({Write::Kind::kCreate, kind, key, std::move(group)});
  } else if ((*driver)->is_mutable && kube::ControllerUidOf(*there) == facts.job.uid) {
    for (const auto& [field, value] : group["spec"].items()) {
      if (kube::At(*there, absl::StrCat("/spec/", field)) == value) continue;
      plan.writes.push_back({Write::Kind::kPatch, kind, key, {{"spec", group["spec"]}}});
      break;
    }
  }
  return absl::OkStatus();
}

absl::Status Scheduling::LookAtQueue(const JobFacts& facts, Plan& plan) {
  if (QueueOf(facts).empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool served, Serves(kube::kKueueWorkload));
  if (!served) {
    AddWarning(absl::StrCat("the label ", std::string(kQueueLabel),
                            " is ignored: Kueue's Workload (v1beta1) is not installed here"),
               plan.verdict);
    return absl::OkStatus();
  }
  Queueing queueing;
  ASSIGN_OR_RETURN(queueing.workload, GetIfThere(client_, kube::kKueueWorkload,
                                                 {facts.job.ns, WorkloadName(facts.job.name)}));
  if (queueing.workload.has_value()) {
    for (const std::string& name : FlavorsOf(*queueing.workload)) {
      ASSIGN_OR_RETURN(std::optional<Json> flavor,
                       GetIfThere(client_, kResourceFlavor, {"", name}));
      if (flavor.has_value()) queueing.flavors[name] = *std::move(flavor);
    }
  }
  if (const std::optional<PriorityClassRef> ref = PriorityClassOf(facts); ref.has_value()) {
    ASSIGN_OR_RETURN(const std::optional<Json> priority,
                     GetIfThere(client_, *ref->kind, {"", ref->name}));
    if (priority.has_value()) queueing.priority = kube::IntAt(*priority, "/value");
  }
  const std::string warning = plan.verdict.warning;
  plan.verdict = QueueVerdict(facts, queueing);
  plan.verdict.warning = warning;
  for (Write& write : QueueWrites(facts, queueing, clock_.WallNow())) {
    plan.writes.push_back(std::move(write));
  }
  for (const RoleFacts& role : facts.roles) {
    plan.role_patches[role.role] = AdmissionPatch(queueing, resources::RoleName(role.role));
  }
  if (facts.outcome == Outcome::kNone) plan.requeue_after = kLookAgain;
  return absl::OkStatus();
}

absl::StatusOr<Plan> Scheduling::Look(const JobFacts& facts) {
  Plan plan;
  RETURN_IF_ERROR(LookAtGang(facts, plan));
  RETURN_IF_ERROR(LookAtQueue(facts, plan));
  // What comes after a write is decided with what it left.
  if (!plan.writes.empty()) plan.requeue_after = std::min(plan.requeue_after, kAfterWrite);
  return plan;
}

absl::Status Scheduling::Settle(const Plan& plan) {
  for (const Write& write : plan.writes) {
    switch (write.kind) {
      case Write::Kind::kCreate:
        RETURN_IF_ERROR(client_.Create(write.resource, write.body).status());
        break;
      case Write::Kind::kPatch:
        RETURN_IF_ERROR(client_.Patch(write.resource, write.key, write.body).status());
        break;
      case Write::Kind::kPatchStatus:
        RETURN_IF_ERROR(client_.PatchStatus(write.resource, write.key, write.body).status());
        break;
    }
    log::Info("told a scheduler",
              {{"kind", std::string(write.resource.kind)}, {"object", write.key.ToString()}});
  }
  return absl::OkStatus();
}

}  // namespace starling::scheduling

// SPDX-License-Identifier: Apache-2.0
#include "controller/scheduling/kueue.h"

#include <algorithm>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "controller/kube/objects.h"
#include "controller/resources/resources.h"

namespace starling::scheduling {
namespace {

using kube::At;
using kube::IsConditionTrue;
using kube::StringAt;

std::string Text(std::string_view view) { return std::string(view); }

std::string PodSetName(resources::Role role) { return Text(resources::RoleName(role)); }

// What Kueue counts: of a pod's spec only what decides where it runs and what it takes; our
// volumes and variables are not Kueue's business, and differ from pod to pod.
Json TemplateOf(const Json& pod) {
  static constexpr const char* kSpec[] = {"nodeSelector",      "affinity",         "tolerations",
                                          "priorityClassName", "runtimeClassName", "overhead",
                                          "schedulerName",     "resourceClaims",   "resources"};
  static constexpr const char* kContainer[] = {"name", "image", "resources", "restartPolicy"};
  const Json& spec = At(pod, "/spec");
  Json kept = {{"restartPolicy", "Never"}};
  for (const char* field : kSpec) {
    if (spec.contains(field)) kept[field] = spec[field];
  }
  for (const char* list : {"initContainers", "containers"}) {
    if (!At(spec, absl::StrCat("/", list)).is_array()) continue;
    kept[list] = Json::array();
    for (const Json& container : spec[list]) {
      Json part = Json::object();
      for (const char* field : kContainer) {
        if (container.contains(field)) part[field] = container[field];
      }
      kept[list].push_back(std::move(part));
    }
  }
  Json metadata = Json::object();
  const Json& labels = At(pod, "/metadata/labels");
  if (labels.is_object()) metadata["labels"] = labels;
  metadata["labels"].erase(Text(resources::kIndexLabel));
  return {{"metadata", std::move(metadata)}, {"spec", std::move(kept)}};
}

Json PodSets(const JobFacts& facts) {
  Json sets = Json::array();
  for (const RoleFacts& role : facts.roles) {
    if (role.wanted <= 0) continue;
    Json set = {{"name", PodSetName(role.role)},
                {"count", role.wanted},
                {"template", TemplateOf(role.pod)}};
    // As the pods get it, unless their template names another.
    if (!facts.priority_class.empty()) {
      set["template"]["spec"].emplace("priorityClassName", facts.priority_class);
    }
    // Kueue lets one set of a Workload shrink; servers and coordinator are needed whole.
    if (role.role == resources::Role::kWorker && role.least < role.wanted && role.least >= 1) {
      set["minCount"] = role.least;
    }
    sets.push_back(std::move(set));
  }
  return sets;
}

// FNV-1a: the same in every build of the controller.
std::string Digest(const Json& value) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : value.dump()) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad16));
}

Json Spec(const JobFacts& facts, const Queueing& queueing) {
  Json spec = {
      {"queueName", QueueOf(facts)}, {"podSets", PodSets(facts)}, {"active", !facts.suspend}};
  const std::optional<PriorityClassRef> ref = PriorityClassOf(facts);
  if (ref.has_value() && queueing.priority.has_value()) {
    spec["priorityClassName"] = ref->name;
    spec["priorityClassSource"] =
        absl::StrCat(Text(ref->kind->group), "/", absl::AsciiStrToLower(Text(ref->kind->kind)));
    spec["priority"] = *queueing.priority;
  }
  return spec;
}

const Json& AssignmentOf(const Json& workload, std::string_view pod_set) {
  static const Json& none = *new Json();
  for (const Json& assignment : At(workload, "/status/admission/podSetAssignments")) {
    if (StringAt(assignment, "/name") == pod_set) return assignment;
  }
  return none;
}

std::int64_t CountOf(const Json& list, std::string_view name, std::int64_t otherwise) {
  for (const Json& item : list) {
    if (StringAt(item, "/name") == name) return kube::IntAt(item, "/count", otherwise);
  }
  return otherwise;
}

// How many pods of a set the admission covers, before any was given back.
std::int64_t Admitted(const Json& workload, std::string_view pod_set) {
  const std::int64_t asked = CountOf(At(workload, "/spec/podSets"), pod_set, 0);
  return kube::IntAt(AssignmentOf(workload, pod_set), "/count", asked);
}

std::int64_t Reclaimed(const Json& workload, std::string_view pod_set) {
  return CountOf(At(workload, "/status/reclaimablePods"), pod_set, 0);
}

bool BelongsTo(const Json& workload, const resources::JobIdentity& job) {
  return kube::ControllerUidOf(workload) == job.uid;
}

bool IsEvicted(const Json& workload) { return IsConditionTrue(workload, "Evicted"); }
bool IsAdmitted(const Json& workload) { return IsConditionTrue(workload, "Admitted"); }
bool HasQuota(const Json& workload) { return IsConditionTrue(workload, "QuotaReserved"); }

Write Patch(const JobFacts& facts, const Json& workload, Write::Kind kind, Json body) {
  // What was decided holds for the version that was read.
  body["metadata"]["resourceVersion"] = kube::ResourceVersionOf(workload);
  return {.kind = kind,
          .resource = kube::kKueueWorkload,
          .key = {facts.job.ns, WorkloadName(facts.job.name)},
          .body = std::move(body)};
}

// Status of the Workload in the making.
struct Status {
  explicit Status(const Json& object)
      : workload(object), conditions(At(object, "/status/conditions")) {
    if (!conditions.is_array()) conditions = Json::array();
  }
  void Set(const char* type, bool value, std::string reason, std::string message, absl::Time now) {
    changed |= kube::SetCondition(conditions,
                                  {.type = type,
                                   .status = value ? "True" : "False",
                                   .reason = std::move(reason),
                                   .message = std::move(message),
                                   .observed_generation = kube::GenerationOf(workload)},
                                  now);
  }
  const Json& workload;
  Json conditions;
  Json others = Json::object();
  bool changed = false;
};

// Once all pods are gone, the quota of an evicted job goes back; Kueue waits for that.
void GiveQuotaBack(const JobFacts& facts, Status& status, absl::Time now) {
  const bool gone = std::all_of(facts.roles.begin(), facts.roles.end(),
                                [](const RoleFacts& role) { return role.live == 0; });
  if (!gone || !HasQuota(status.workload)) return;
  const Json& evicted = kube::FindCondition(status.workload, "Evicted");
  const std::string reason = StringAt(evicted, "/reason");
  const std::string message = StringAt(evicted, "/message");
  status.Set("Requeued", reason == "Preempted", reason, message, now);
  status.Set("QuotaReserved", false, "Pending", message, now);
  status.Set("Admitted", false, "NoReservation", "The workload has no reservation", now);
  status.others["admission"] = nullptr;
  status.changed = true;
}

// Readiness once reached stays: a job that goes on with fewer is doing what it is for.
void TellReadiness(const JobFacts& facts, Status& status, absl::Time now) {
  if (IsConditionTrue(status.workload, "PodsReady")) return;
  const bool ready = std::all_of(facts.roles.begin(), facts.roles.end(), [](const RoleFacts& role) {
    return role.ready >= std::min(role.least, role.wanted);
  });
  if (ready) {
    status.Set("PodsReady", true, "Started", "as many pods are ready as training needs", now);
  } else {
    status.Set("PodsReady", false, "WaitForStart", "pods that training needs are not ready", now);
  }
}

// Kueue takes back what a job that shrank does not need; it never gives more within an admission.
void TellReclaimable(const JobFacts& facts, Status& status) {
  Json reclaimable = Json::array();
  bool grown = false;
  for (const RoleFacts& role : facts.roles) {
    const std::string name = PodSetName(role.role);
    const std::int64_t before = Reclaimed(status.workload, name);
    const std::int64_t needed = std::max(role.wanted, role.live);
    const std::int64_t now = std::max(before, Admitted(status.workload, name) - needed);
    grown |= now > before;
    if (now > 0) reclaimable.push_back({{"name", name}, {"count", now}});
  }
  if (!grown) return;
  status.others["reclaimablePods"] = std::move(reclaimable);
  status.changed = true;
}

void TellEnd(const JobFacts& facts, Status& status, absl::Time now) {
  status.Set("Finished", true, facts.outcome == Outcome::kSucceeded ? "Succeeded" : "Failed",
             facts.outcome_message, now);
}

std::vector<Write> StatusWrites(const JobFacts& facts, const Json& workload, absl::Time now) {
  Status status(workload);
  if (facts.outcome != Outcome::kNone) {
    TellEnd(facts, status, now);
  } else if (IsEvicted(workload)) {
    GiveQuotaBack(facts, status, now);
  } else if (IsAdmitted(workload)) {
    TellReadiness(facts, status, now);
    TellReclaimable(facts, status);
  }
  if (!status.changed) return {};
  Json body = {{"status", std::move(status.others)}};
  body["status"]["conditions"] = std::move(status.conditions);
  return {Patch(facts, workload, Write::Kind::kPatchStatus, std::move(body))};
}

std::string HoldReason(const Json& workload) {
  if (IsEvicted(workload)) return "Evicted";
  return HasQuota(workload) ? "WaitingForAdmissionChecks" : "Queued";
}

std::string HoldMessage(const JobFacts& facts, const Json& workload) {
  const std::string queue = absl::StrCat("queue ", QueueOf(facts));
  for (const char* type : {"Evicted", "QuotaReserved", "Admitted"}) {
    const Json& condition = kube::FindCondition(workload, type);
    const std::string message = StringAt(condition, "/message");
    const bool speaks = (StringAt(condition, "/status") == "True") == (Text(type) == "Evicted");
    if (condition.is_object() && speaks && !message.empty()) {
      return absl::StrCat(queue, ": ", message);
    }
  }
  return absl::StrCat(queue, " has not admitted the job yet");
}

void Merge(Json& map, const Json& more) {
  if (more.is_object()) map.update(more);
}

void Append(Json& list, const Json& more) {
  for (const Json& item : more) {
    if (std::find(list.begin(), list.end(), item) == list.end()) list.push_back(item);
  }
}

}  // namespace

std::string QueueOf(const JobFacts& facts) {
  const auto label = facts.labels.find(Text(kQueueLabel));
  return label == facts.labels.end() ? std::string() : label->second;
}

std::optional<PriorityClassRef> PriorityClassOf(const JobFacts& facts) {
  const auto label = facts.labels.find(Text(kWorkloadPriorityLabel));
  if (label != facts.labels.end()) {
    return PriorityClassRef{&kWorkloadPriorityClass, label->second};
  }
  std::string name = facts.priority_class;
  for (const RoleFacts& role : facts.roles) {
    if (name.empty()) name = StringAt(role.pod, "/spec/priorityClassName");
  }
  if (name.empty()) return std::nullopt;
  return PriorityClassRef{&kube::kPriorityClass, std::move(name)};
}

std::string WorkloadName(std::string_view job) { return absl::StrCat("trainingjob-", Text(job)); }

Json BuildWorkload(const JobFacts& facts, const Queueing& queueing) {
  Json spec = Spec(facts, queueing);
  return {{"apiVersion", kube::kKueueWorkload.ApiVersion()},
          {"kind", Text(kube::kKueueWorkload.kind)},
          {"metadata",
           {{"name", WorkloadName(facts.job.name)},
            {"namespace", facts.job.ns},
            {"labels",
             {{Text(resources::kJobLabel), facts.job.name},
              {"kueue.x-k8s.io/job-uid", facts.job.uid},
              {"app.kubernetes.io/managed-by", "starling-controller"}}},
            {"annotations", {{Text(kPodSetsAnnotation), Digest(spec["podSets"])}}},
            {"ownerReferences", Json::array({facts.owner})}}},
          {"spec", spec}};
}

std::vector<std::string> FlavorsOf(const Json& workload) {
  std::set<std::string> names;
  for (const Json& assignment : At(workload, "/status/admission/podSetAssignments")) {
    for (const Json& flavor : At(assignment, "/flavors")) {
      if (flavor.is_string()) names.insert(flavor.get<std::string>());
    }
  }
  return {names.begin(), names.end()};
}

Verdict QueueVerdict(const JobFacts& facts, const Queueing& queueing) {
  Verdict verdict;
  if (QueueOf(facts).empty() || facts.outcome != Outcome::kNone) return verdict;
  verdict.hold = true;
  verdict.reason = "Queued";
  verdict.message = absl::StrCat("queue ", QueueOf(facts), " has not admitted the job yet");
  if (!queueing.workload.has_value() || !BelongsTo(*queueing.workload, facts.job)) return verdict;
  const Json& workload = *queueing.workload;
  if (!IsAdmitted(workload) || IsEvicted(workload)) {
    verdict.reason = HoldReason(workload);
    verdict.message = HoldMessage(facts, workload);
    return verdict;
  }
  verdict = Verdict();
  const auto limit = [&](resources::Role role) {
    return Admitted(workload, PodSetName(role)) - Reclaimed(workload, PodSetName(role));
  };
  const auto message = [&](std::int64_t count, const char* what) {
    return absl::StrCat("queue ", QueueOf(facts), " admitted the job with ", count, " ", what,
                        "; suspend and resume it to ask for more");
  };
  verdict.worker_limit = limit(resources::Role::kWorker);
  verdict.limit_message = message(*verdict.worker_limit, "workers");
  // Servers are admitted all or not at all, but the user may have asked for more since.
  const bool served = std::any_of(facts.roles.begin(), facts.roles.end(), [](const RoleFacts& of) {
    return of.role == resources::Role::kParameterServer;
  });
  if (served) {
    verdict.server_limit = limit(resources::Role::kParameterServer);
    verdict.server_limit_message = message(*verdict.server_limit, "parameter servers");
  }
  return verdict;
}

std::vector<Write> QueueWrites(const JobFacts& facts, const Queueing& queueing, absl::Time now) {
  if (QueueOf(facts).empty()) return {};
  const bool ended = facts.outcome != Outcome::kNone;
  if (!queueing.workload.has_value()) {
    if (ended) return {};
    return {{.kind = Write::Kind::kCreate,
             .resource = kube::kKueueWorkload,
             .key = {facts.job.ns, WorkloadName(facts.job.name)},
             .body = BuildWorkload(facts, queueing)}};
  }
  const Json& workload = *queueing.workload;
  // An earlier job's goes with that job; until then there is nothing to be done.
  if (!BelongsTo(workload, facts.job) || kube::IsBeingDeleted(workload)) return {};
  const Json wanted = BuildWorkload(facts, queueing);
  if (!ended && kube::BoolAt(workload, "/spec/active", true) != !facts.suspend) {
    return {Patch(facts, workload, Write::Kind::kPatch, {{"spec", {{"active", !facts.suspend}}}})};
  }
  // While there is quota, what was asked for stands.
  const bool differs = kube::AnnotationOf(workload, kPodSetsAnnotation) !=
                           kube::AnnotationOf(wanted, kPodSetsAnnotation) ||
                       StringAt(workload, "/spec/queueName") != QueueOf(facts);
  if (!ended && differs && !HasQuota(workload)) {
    return {Patch(facts, workload, Write::Kind::kPatch,
                  {{"metadata", {{"annotations", wanted["metadata"]["annotations"]}}},
                   {"spec", wanted["spec"]}})};
  }
  return StatusWrites(facts, workload, now);
}

Json AdmissionPatch(const Queueing& queueing, std::string_view pod_set) {
  if (!queueing.workload.has_value()) return Json::object();
  const Json& workload = *queueing.workload;
  Json labels = Json::object(), annotations = labels, selector = labels;
  Json tolerations = Json::array();
  for (const Json& flavor : At(AssignmentOf(workload, pod_set), "/flavors")) {
    const auto found = flavor.is_string() ? queueing.flavors.find(flavor.get<std::string>())
                                          : queueing.flavors.end();
    if (found == queueing.flavors.end()) continue;
    Merge(selector, At(found->second, "/spec/nodeLabels"));
    Append(tolerations, At(found->second, "/spec/tolerations"));
  }
  for (const Json& check : At(workload, "/status/admissionChecks")) {
    for (const Json& update : At(check, "/podSetUpdates")) {
      if (StringAt(update, "/name") != pod_set) continue;
      Merge(labels, At(update, "/labels"));
      Merge(annotations, At(update, "/annotations"));
      Merge(selector, At(update, "/nodeSelector"));
      Append(tolerations, At(update, "/tolerations"));
    }
  }
  return {{"metadata", {{"labels", labels}, {"annotations", annotations}}},
          {"spec", {{"nodeSelector", selector}, {"tolerations", tolerations}}}};
}

}  // namespace starling::scheduling

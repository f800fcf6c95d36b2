// SPDX-License-Identifier: Apache-2.0
#include "api/schema/cel_rules.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/spec/metrics.h"
#include "api/spec/techniques.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::schema {
namespace {

using spec::Descriptor;
using spec::FieldDescriptor;
using spec::Kind;

constexpr char kForbidden[] = "FieldValueForbidden";
constexpr char kWasSuspended[] = "oldSelf.runPolicy.suspend";

// The way to a field of the message that a rule stands beside.
using Way = std::vector<const FieldDescriptor*>;

std::string PathOf(const Way& way) {
  std::vector<std::string> names;
  for (const FieldDescriptor* step : way) names.push_back(step->json_name());
  return absl::StrJoin(names, ".");
}

// Whether all of a.b.c below `root` is there.
std::string Has(const std::string& root, const std::string& path) {
  std::vector<std::string> steps;
  std::string at = root;
  for (const auto& name : absl::StrSplit(path, '.')) {
    absl::StrAppend(&at, ".", name);
    steps.push_back(absl::StrCat("has(", at, ")"));
  }
  return absl::StrJoin(steps, " && ");
}

// The same of a way on which some are always there and need not be asked for. Empty: all of them.
std::string Given(const std::string& root, const Way& way) {
  std::vector<std::string> steps;
  std::string at = root;
  for (const FieldDescriptor* step : way) {
    absl::StrAppend(&at, ".", step->json_name());
    const auto& marks = spec::RulesOf(*step);
    if (marks.schema_default() || marks.required()) continue;
    steps.push_back(absl::StrCat("has(", at, ")"));
  }
  return absl::StrJoin(steps, " && ");
}

// Given on both sides and equal, or on neither. The server's own default, below a message that
// comes with this change, is the same as nothing.
std::string Same(const Way& way) {
  const std::string path = PathOf(way);
  std::string equal = absl::StrCat("self.", path, " == oldSelf.", path);
  const std::string now = Given("self", way), before = Given("oldSelf", way);
  if (now.empty()) return equal;
  const auto& marks = spec::RulesOf(*way.back());
  if (marks.schema_default()) {
    const std::string plain = absl::StrCat("self.", path, " == ", marks.default_value());
    return absl::StrCat("(", now, " ? (", before, " ? ", equal, " : ", plain, ") : !(", before,
                        "))");
  }
  return absl::StrCat("(", now, " ? ", before, " && ", equal, " : !(", before, "))");
}

bool IsSingleMessage(const FieldDescriptor& field) {
  return !field.is_repeated() && spec::KindOf(field) == Kind::kMessage;
}

bool HoldsMarks(const Descriptor& message) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const auto& rules = spec::RulesOf(field);
    if (rules.mutable_while_running() || rules.immutable()) return true;
    if (IsSingleMessage(field) && HoldsMarks(*field.message_type())) return true;
  }
  return false;
}

// One rule for each part of the spec that may change only while the job is suspended.
void AddSuspension(const Descriptor& message, Way& way, std::vector<CelRule>& rules) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const auto& marks = spec::RulesOf(field);
    // Of a raw object the server's expressions see no member: the webhook compares it.
    if (marks.mutable_while_running() || marks.immutable() || marks.raw_json()) continue;
    way.push_back(&field);
    if (IsSingleMessage(field) && HoldsMarks(*field.message_type())) {
      AddSuspension(*field.message_type(), way, rules);
    } else {
      rules.push_back({absl::StrCat(Same(way), " || ", kWasSuspended),
                       "must not change while the job runs; suspend it first, or submit the job "
                       "under another name",
                       "." + PathOf(way), kForbidden});
    }
    way.pop_back();
  }
}

void AddMarks(const Descriptor& message, std::vector<CelRule>& rules) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const auto& marks = spec::RulesOf(field);
    const std::string& name = field.json_name();
    if (marks.immutable()) {
      rules.push_back({Same({&field}), "never changes; submit the job under another name",
                       "." + name, kForbidden});
    }
    if (!marks.required_unless().empty()) {
      std::string given = absl::StrCat("has(self.", name, ")");
      for (const std::string& other : marks.required_unless()) {
        absl::StrAppend(&given, " || (", Has("self", other), ")");
      }
      rules.push_back({given, "is required and missing", "." + name, "FieldValueRequired"});
    }
  }
}

constexpr char kAlone[] =
    "must be 1 with spec.exchange.none, for nothing travels between workers; lower it or use "
    "allReduce";

void AddSizes(std::vector<CelRule>& rules) {
  for (const char* name : {"minReplicas", "replicas"}) {
    rules.push_back({absl::StrCat("!has(self.maxReplicas) || !has(self.", name, ") || self.", name,
                                  " <= self.maxReplicas"),
                     "must be at most maxReplicas; lower it or raise maxReplicas",
                     absl::StrCat(".", name)});
  }
}

void AddTarget(std::vector<CelRule>& rules) {
  for (const spec::Metric& metric : spec::AllMetrics()) {
    const std::string other = absl::StrCat("self.metric != '", metric.name, "' || ");
    const std::string name = spec::ShortName(metric);
    if (metric.higher_is_better) {
      rules.push_back({other + "!has(self.atMost)",
                       name + " is better the higher it is; write atLeast instead", ".atMost"});
    } else {
      rules.push_back({other + "!has(self.atLeast)",
                       name + " is better the lower it is; write atMost instead", ".atLeast"});
    }
    if (!metric.is_share) continue;
    rules.push_back({other + "!has(self.atLeast) || (self.atLeast >= 0.0 && self.atLeast <= 1.0)",
                     "must be a share from 0 to 1, such as 0.95", ".atLeast"});
  }
}

// Each workload has its own metrics.
void AddMetrics(std::vector<CelRule>& rules) {
  const Descriptor& workloads = *v1alpha1::Workload::descriptor();
  for (int i = 0; i < workloads.field_count(); ++i) {
    const FieldDescriptor& workload = *workloads.field(i);
    std::vector<std::string> names;
    for (const spec::Metric& metric :
         spec::MetricsOf(static_cast<v1alpha1::Workload::KindCase>(workload.number()))) {
      names.emplace_back(metric.name);
    }
    if (names.empty()) continue;
    rules.push_back(
        {absl::StrCat("!has(self.stop) || !has(self.stop.target) || !has(self.workload.",
                      workload.json_name(), ") || self.stop.target.metric in ['",
                      absl::StrJoin(names, "', '"), "']"),
         absl::StrCat("spec.workload.", workload.json_name(), " has ", absl::StrJoin(names, ", ")),
         ".stop.target.metric"});
  }
}

// Whether the field at `path` is on (api/spec/techniques.h), of an object in which what is not
// given is off.
std::string On(const std::string& path, bool by_presence = false) {
  const Way way = spec::WayTo(path);
  const FieldDescriptor& field = *way.back();
  std::string on = Given("self", way);
  if (on.empty()) on = "true";
  if (by_presence) return on;
  const std::string value = absl::StrCat("self.", path);
  switch (spec::KindOf(field)) {
    case Kind::kBoolean:
      return absl::StrCat(on, " && ", value);
    case Kind::kInteger:
      return absl::StrCat(on, " && ", value, " != 0");
    case Kind::kNumber:
      return absl::StrCat(on, " && ", value, " != 0.0");
    case Kind::kEnum: {
      // JSON and CEL quote alike.
      const std::string& off = spec::RulesOf(field).default_value();
      return off.empty() ? on : absl::StrCat(on, " && ", value, " != ", off);
    }
    default:
      return on;
  }
}

std::string AnyOn(const std::vector<std::string>& paths) {
  std::vector<std::string> any;
  for (const std::string& path : paths) any.push_back(absl::StrCat("(", On(path), ")"));
  return absl::StrJoin(any, " || ");
}

// Whether a union is left to its default, the field at `path`. Empty where that is no default.
std::string LeftToDefault(const std::string& path) {
  Way way = spec::WayTo(path);
  const FieldDescriptor& field = *way.back();
  const auto* choice = field.real_containing_oneof();
  if (choice == nullptr || spec::RulesOf(*choice).default_member() != field.json_name()) return {};
  way.pop_back();
  std::vector<std::string> given;
  for (int i = 0; i < choice->field_count(); ++i) {
    given.push_back(
        absl::StrCat("has(self.", PathOf(way), ".", choice->field(i)->json_name(), ")"));
  }
  return absl::StrCat("!(", Given("self", way), " && (", absl::StrJoin(given, " || "), "))");
}

// Whether any of the fields is on, given or by default.
std::string AnyHolds(const std::vector<std::string>& paths) {
  std::vector<std::string> any = {AnyOn(paths)};
  for (const std::string& path : paths) {
    if (std::string left = LeftToDefault(path); !left.empty()) any.push_back(std::move(left));
  }
  return absl::StrJoin(any, " || ");
}

// One rule for each thing that a technique needs or does not go with. What is needed may be a
// default, or come from a preset, which the server does not know; what does not go with it may be a
// default too, which only the webhook knows.
void AddTechnique(const spec::Technique& technique, std::vector<CelRule>& rules) {
  const std::string path = absl::StrCat(".", technique.field);
  const std::string off = absl::StrCat("!(", On(technique.field, technique.by_presence), ")");
  if (!technique.pending.empty()) {
    rules.push_back({off, spec::WordsOfPending(technique), path, kForbidden});
    return;
  }
  for (const spec::TechniqueRule& rule : technique.rules) {
    const std::string allowed =
        rule.beside.empty() ? off : absl::StrCat(off, " || !(", AnyOn(rule.beside), ")");
    if (rule.kind == spec::TechniqueRule::Kind::kNeeds) {
      rules.push_back({absl::StrCat(allowed, " || has(self.preset) || ", AnyHolds(rule.fields)),
                       spec::WordsOf(rule), path, kForbidden});
      continue;
    }
    for (const std::string& field : rule.fields) {
      rules.push_back({absl::StrCat(allowed, " || !(", On(field), ")"), spec::WordsOf(rule, field),
                       path, kForbidden});
    }
  }
}

void AddTechniques(std::vector<CelRule>& rules) {
  for (const spec::Technique& technique : spec::Techniques()) AddTechnique(technique, rules);
}

void AddSpec(std::vector<CelRule>& rules) {
  rules.push_back({"!has(self.dataset) || has(self.dataset.train) || has(self.workload.pytorch)",
                   "is required and missing", ".dataset.train", "FieldValueRequired"});
  const std::string replicas = ".replicaSpecs.worker.replicas";
  rules.push_back({"self.replicaSpecs.worker.replicas > 0 || self.runPolicy.suspend",
                   "must be at least 1, not 0; to release all workers and keep the state, set "
                   "spec.runPolicy.suspend: true",
                   replicas});
  rules.push_back(
      {"self.replicaSpecs.worker.replicas >= self.replicaSpecs.worker.minReplicas || "
       "self.replicaSpecs.worker.replicas == 0 || (has(self.replicaSpecs.worker.maxReplicas) && "
       "self.replicaSpecs.worker.minReplicas > self.replicaSpecs.worker.maxReplicas)",
       "must be at least minReplicas; raise it or lower minReplicas", replicas});
  for (const char* name : {"replicas", "maxReplicas"}) {
    const std::string field = absl::StrCat("self.replicaSpecs.worker.", name);
    const std::string given = absl::StrCat("has(", field, ")");
    rules.push_back({absl::StrCat("!has(self.exchange) || !has(self.exchange.none) || !", given,
                                  " || ", field, " <= 1"),
                     kAlone, absl::StrCat(".replicaSpecs.worker.", name)});
  }
  rules.push_back(
      {"!has(self.reproducible) || !self.reproducible || "
       "(has(self.replicaSpecs.worker.maxReplicas) ? "
       "self.replicaSpecs.worker.maxReplicas : self.replicaSpecs.worker.replicas) <= 16",
       "must be at most 16 with spec.reproducible", replicas});
  rules.push_back(
      {"!has(self.runPolicy.schedulingPolicy) || "
       "!has(self.runPolicy.schedulingPolicy.minAvailable) || "
       "!has(self.replicaSpecs.worker.maxReplicas) || "
       "self.runPolicy.schedulingPolicy.minAvailable <= "
       "self.replicaSpecs.worker.maxReplicas",
       "must be at most maxReplicas of the workers", ".runPolicy.schedulingPolicy.minAvailable"});
}

void AddParameterServers(std::vector<CelRule>& rules) {
  const std::string role = "self.replicaSpecs.parameterServer";
  const std::string path = ".replicaSpecs.parameterServer";
  const std::string none = absl::StrCat("!has(", role, ")");
  rules.push_back({absl::StrCat(none, " || ", role, ".replicas > 0 || self.runPolicy.suspend"),
                   "must be at least 1, not 0, for the servers hold the model; to release all "
                   "pods and keep the state, set spec.runPolicy.suspend: true",
                   absl::StrCat(path, ".replicas")});
  rules.push_back({absl::StrCat(none, " || !has(", role, ".maxReplicas) || !(",
                                Has("self", "exchange.parameterServer.replication"), ") || ", role,
                                ".maxReplicas >= self.exchange.parameterServer.replication"),
                   "must be at least spec.exchange.parameterServer.replication; raise it or lower "
                   "replication",
                   absl::StrCat(path, ".maxReplicas")});
}

}  // namespace

std::vector<CelRule> CelRulesOf(const Descriptor& message) {
  std::vector<CelRule> rules;
  AddMarks(message, rules);
  if (&message == v1alpha1::TrainingJobSpec::descriptor()) {
    AddSpec(rules);
    AddParameterServers(rules);
    AddMetrics(rules);
    AddTechniques(rules);
    Way way;
    AddSuspension(message, way, rules);
  } else if (&message == v1alpha1::WorkerSpec::descriptor()) {
    AddSizes(rules);
  } else if (&message == v1alpha1::ParameterServerSpec::descriptor()) {
    AddSizes(rules);
    rules.push_back(
        {"self.replicas >= self.minReplicas || self.replicas == 0 || "
         "(has(self.maxReplicas) && self.minReplicas > self.maxReplicas)",
         "must be at least minReplicas; raise it or lower minReplicas", ".replicas"});
  } else if (&message == v1alpha1::Target::descriptor()) {
    AddTarget(rules);
  } else if (&message == v1alpha1::IdxSource::descriptor()) {
    rules.push_back(
        {"self.imagesUri != self.labelsUri", "must be another file than imagesUri", ".labelsUri"});
  } else if (&message == v1alpha1::ImageFolderSource::descriptor() ||
             &message == v1alpha1::TarSource::descriptor()) {
    rules.push_back({"!has(self.shape) || self.shape[0] == 1 || self.shape[0] == 3",
                     "must have 3 channels (red, green, blue) or 1 (grey); write "
                     "[3, height, width]",
                     ".shape"});
  }
  return rules;
}

}  // namespace starling::schema

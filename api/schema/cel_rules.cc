// SPDX-License-Identifier: Apache-2.0
#include "api/schema/cel_rules.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
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

bool AlwaysThere(const FieldDescriptor& field) {
  const auto& marks = spec::RulesOf(field);
  return marks.schema_default() || marks.required();
}

// The same of a way of which its first `known` fields, and those that are always there, need not be
// asked for. Empty: none is left.
std::string Given(const std::string& root, const Way& way, size_t known = 0) {
  std::vector<std::string> steps;
  std::string at = root;
  for (size_t i = 0; i < way.size(); ++i) {
    absl::StrAppend(&at, ".", way[i]->json_name());
    if (i >= known && !AlwaysThere(*way[i])) steps.push_back(absl::StrCat("has(", at, ")"));
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

// A text in CEL.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

// One of several conditions that make one rule.
struct Clause {
  std::string holds;            // whether it is kept
  std::string words;            // what to say where it is not; both in CEL
  std::string beside = "true";  // asked for only where this is so
};

std::string Required(const Clause& clause) {
  if (clause.beside == "true") return absl::StrCat("(", clause.holds, ")");
  return absl::StrCat("(!(", clause.beside, ") || ", clause.holds, ")");
}

// Whether all are kept.
std::string AllHold(const std::vector<Clause>& clauses) {
  std::vector<std::string> all;
  all.reserve(clauses.size());
  for (const Clause& clause : clauses) all.push_back(Required(clause));
  return absl::StrJoin(all, " && ");
}

// What the first that is not kept says.
std::string WordsOfFirst(const std::vector<Clause>& clauses) {
  std::string words = clauses.back().words;
  for (auto clause = std::next(clauses.rbegin()); clause != clauses.rend(); ++clause) {
    words = absl::StrCat("!", Required(*clause), " ? ", clause->words, " : ", words);
  }
  return words;
}

// Of each part of the spec that may change only while the job is suspended that it has not changed.
void AddUnchanged(const Descriptor& message, Way& way, std::vector<Clause>& clauses) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const auto& marks = spec::RulesOf(field);
    // Of a raw object the server's expressions see no member: the webhook compares it.
    if (marks.mutable_while_running() || marks.immutable() || marks.raw_json()) continue;
    way.push_back(&field);
    if (IsSingleMessage(field) && HoldsMarks(*field.message_type())) {
      AddUnchanged(*field.message_type(), way, clauses);
    } else {
      clauses.push_back({Same(way), Quoted("spec." + PathOf(way))});
    }
    way.pop_back();
  }
}

// A write of the status, which is most of them, ends at the first question.
void AddSuspension(const Descriptor& message, std::vector<CelRule>& rules) {
  Way way;
  std::vector<Clause> clauses;
  AddUnchanged(message, way, clauses);
  rules.push_back(
      {absl::StrCat("self == oldSelf || ", kWasSuspended, " || (", AllHold(clauses), ")"), "", "",
       kForbidden,
       absl::StrCat("(", WordsOfFirst(clauses), ") + ",
                    Quoted(" must not change while the job runs; suspend it first, or "
                           "submit the job under another name"))});
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
  // Of the server's own default, an empty message, neither is there yet.
  rules.push_back(
      {"!has(self.replicas) || !has(self.minReplicas) || self.replicas >= self.minReplicas || "
       "self.replicas == 0 || (has(self.maxReplicas) && self.minReplicas > self.maxReplicas)",
       "must be at least minReplicas; raise it or lower minReplicas", ".replicas"});
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
  std::vector<Clause> clauses;
  for (int i = 0; i < workloads.field_count(); ++i) {
    const FieldDescriptor& workload = *workloads.field(i);
    std::vector<std::string> names;
    for (const spec::Metric& metric :
         spec::MetricsOf(static_cast<v1alpha1::Workload::KindCase>(workload.number()))) {
      names.emplace_back(metric.name);
    }
    if (names.empty()) continue;
    clauses.push_back(
        {absl::StrCat("self.stop.target.metric in ['", absl::StrJoin(names, "', '"), "']"),
         Quoted(absl::StrCat("spec.workload.", workload.json_name(), " has ",
                             absl::StrJoin(names, ", "))),
         absl::StrCat("has(self.workload.", workload.json_name(), ")")});
  }
  rules.push_back(
      {absl::StrCat("!has(self.stop) || !has(self.stop.target) || (", AllHold(clauses), ")"), "",
       ".stop.target.metric", "FieldValueInvalid", WordsOfFirst(clauses)});
}

// Whether the field at `path` is on (api/spec/techniques.h), of an object in which what is not
// given is off. Its first `known` fields are there. "true": it is on in any case.
std::string On(const std::string& path, bool by_presence = false, size_t known = 0) {
  const Way way = spec::WayTo(path);
  const FieldDescriptor& field = *way.back();
  std::vector<std::string> on;
  if (std::string given = Given("self", way, known); !given.empty()) on.push_back(std::move(given));
  const std::string value = absl::StrCat("self.", path);
  // JSON and CEL quote alike.
  const std::string& off = spec::RulesOf(field).default_value();
  const Kind kind = by_presence ? Kind::kMessage : spec::KindOf(field);
  if (kind == Kind::kBoolean) on.push_back(value);
  if (kind == Kind::kInteger) on.push_back(value + " != 0");
  if (kind == Kind::kNumber) on.push_back(value + " != 0.0");
  if (kind == Kind::kEnum && !off.empty()) on.push_back(absl::StrCat(value, " != ", off));
  return on.empty() ? "true" : absl::StrJoin(on, " && ");
}

std::string Any(const std::vector<std::string>& conditions) {
  if (conditions.size() == 1) return conditions.front();
  return absl::StrCat("(", absl::StrJoin(conditions, ") || ("), ")");
}

std::string AnyOn(const std::vector<std::string>& paths) {
  std::vector<std::string> any;
  for (const std::string& path : paths) any.push_back(On(path));
  return Any(any);
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

// Words of which parts are known only when the rule is broken.
class Words {
 public:
  void Say(std::string_view text) { text_.append(text); }

  // The text of the first condition that holds, of the last where none before it does.
  void SayFirst(const std::vector<std::pair<std::string, std::string>>& texts) {
    if (texts.size() == 1) return Say(texts.front().second);
    std::string cel = Quoted(texts.back().second);
    for (auto other = std::next(texts.rbegin()); other != texts.rend(); ++other) {
      cel = absl::StrCat(other->first, " ? ", Quoted(other->second), " : ", cel);
    }
    End();
    parts_.push_back(absl::StrCat("(", cel, ")"));
  }

  std::string InCel() {
    End();
    return absl::StrJoin(parts_, " + ");
  }

 private:
  void End() {
    if (!text_.empty()) parts_.push_back(Quoted(text_));
    text_.clear();
  }

  std::string text_;
  std::vector<std::string> parts_;
};

// One thing that techniques need or do not go with, and all below one field to which it applies.
struct SharedRule {
  const spec::TechniqueRule* rule;  // null: they are all pending
  std::vector<const spec::Technique*> techniques;
};

// For each of the techniques whether it is on, and how it is called beside `group`, above them all.
std::vector<std::pair<std::string, std::string>> Chosen(const SharedRule& shared,
                                                        const Way& group) {
  std::vector<std::pair<std::string, std::string>> chosen;
  for (const spec::Technique* technique : shared.techniques) {
    std::string on = On(technique->field, technique->by_presence, group.size());
    std::string name = technique->field.substr(PathOf(group).size());
    if (!name.empty()) name = name.substr(1) + " ";
    chosen.emplace_back(std::move(on), std::move(name));
  }
  return chosen;
}

void SayBroken(const spec::TechniqueRule& rule, Words& words) {
  constexpr char kField[] = "\n";  // stands for the field at fault; no words have it
  const std::string text = spec::WordsOf(rule, kField);
  const size_t at = text.find(kField);
  if (at == std::string::npos) return words.Say(text);
  std::vector<std::pair<std::string, std::string>> fields;
  for (const std::string& field : rule.fields) fields.emplace_back(On(field), field);
  words.Say(text.substr(0, at));
  words.SayFirst(fields);
  words.Say(text.substr(at + 1));
}

// What is needed may be a default, or come from a preset, which the server does not know; what does
// not go with the technique may be a default too, which only the webhook knows.
Clause ClauseOf(const SharedRule& shared, const Way& group) {
  const auto chosen = Chosen(shared, group);
  std::vector<std::string> any;
  for (const auto& [on, name] : chosen) any.push_back(on);
  Words words;
  words.SayFirst(chosen);
  std::string holds = "false";
  if (shared.rule == nullptr) {
    words.Say(spec::WordsOfPending(*shared.techniques.front()));
  } else {
    const spec::TechniqueRule& rule = *shared.rule;
    SayBroken(rule, words);
    holds = rule.kind == spec::TechniqueRule::Kind::kNeeds
                ? absl::StrCat("has(self.preset) || ", AnyHolds(rule.fields))
                : absl::StrCat("!(", AnyOn(rule.fields), ")");
    if (!rule.beside.empty()) holds = absl::StrCat("!(", AnyOn(rule.beside), ") || ", holds);
  }
  return {std::move(holds), words.InCel(), Any(any)};
}

// How many of the first fields on a technique's way have one rule together with all others that
// begin so: up to the first that is not always there.
size_t StepsOfGroup(const Way& way) {
  const auto first = std::ranges::find_if_not(
      way, [](const FieldDescriptor* field) { return AlwaysThere(*field); });
  return first == way.end() ? way.size() : static_cast<size_t>(first - way.begin()) + 1;
}

// All techniques below one field, by what they have in common.
struct Group {
  Way way;
  std::vector<SharedRule> rules = {};

  void Add(const spec::TechniqueRule* rule, const spec::Technique& technique) {
    const auto same = [&](const SharedRule& other) {
      if (rule != nullptr && other.rule != nullptr) return *rule == *other.rule;
      return rule == other.rule && other.techniques.front()->pending == technique.pending;
    };
    auto found = std::ranges::find_if(rules, same);
    if (found == rules.end()) found = rules.insert(rules.end(), {rule, {}});
    found->techniques.push_back(&technique);
  }
};

std::vector<Group> TechniqueGroups() {
  std::vector<Group> groups;
  for (const spec::Technique& technique : spec::Techniques()) {
    Way way = spec::WayTo(technique.field);
    way.resize(StepsOfGroup(way));
    auto found = std::ranges::find(groups, way, &Group::way);
    if (found == groups.end()) found = groups.insert(groups.end(), {std::move(way)});
    if (!technique.pending.empty()) {
      found->Add(nullptr, technique);
      continue;
    }
    for (const spec::TechniqueRule& rule : technique.rules) found->Add(&rule, technique);
  }
  return groups;
}

// All that the techniques below one field need and do not go with is one rule, beside that field: a
// job without it answers one question.
void AddTechniques(std::vector<CelRule>& rules) {
  for (const Group& group : TechniqueGroups()) {
    if (group.rules.empty()) continue;
    std::vector<Clause> clauses;
    for (const SharedRule& shared : group.rules) clauses.push_back(ClauseOf(shared, group.way));
    const std::string given = Given("self", group.way), all = AllHold(clauses);
    rules.push_back({given.empty() ? all : absl::StrCat("!", given, " || (", all, ")"), "",
                     "." + PathOf(group.way), kForbidden, WordsOfFirst(clauses)});
  }
}

void AddSpec(std::vector<CelRule>& rules) {
  rules.push_back({"!has(self.dataset) || has(self.dataset.train) || has(self.workload.pytorch)",
                   "is required and missing", ".dataset.train", "FieldValueRequired"});
  const std::string replicas = ".replicaSpecs.worker.replicas";
  rules.push_back({"self.replicaSpecs.worker.replicas > 0 || self.runPolicy.suspend",
                   "must be at least 1, not 0; to release all workers and keep the state, set "
                   "spec.runPolicy.suspend: true",
                   replicas});
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
    AddSuspension(message, rules);
  } else if (&message == v1alpha1::WorkerSpec::descriptor() ||
             &message == v1alpha1::ParameterServerSpec::descriptor()) {
    AddSizes(rules);
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

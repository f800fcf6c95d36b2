// SPDX-License-Identifier: Apache-2.0
#include "api/spec/template_bounds.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "api/spec/contract.h"
#include "api/spec/quantity.h"
#include "common/json/json.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using Json = nlohmann::json;
using v1alpha1::FieldBound;
using v1alpha1::PodBounds;
using FieldWay = std::vector<const FieldDescriptor*>;

// Without a limit of its own a container may take all that a node has of these; of all other
// resources it gets none that it does not ask for.
constexpr const char* kUnlimited[] = {"cpu", "memory", "ephemeral-storage"};

// Scaling changes these without being asked about bounds: it knows minReplicas and maxReplicas.
constexpr const char* kScaled[] = {"replicaSpecs.worker.replicas",
                                   "replicaSpecs.parameterServer.replicas"};

// Descriptors from below spec to the field; empty, with what is wrong: there is no such field.
FieldWay FieldWayOf(const std::string& field, std::string& error) {
  FieldWay way;
  const Descriptor* message = v1alpha1::TrainingJobSpec::descriptor();
  std::string path;
  for (const absl::string_view piece : absl::StrSplit(field, '.')) {
    const std::string name(piece);
    if (message == nullptr) {
      error = absl::StrCat("spec.", path, " has no fields");
      return {};
    }
    const FieldDescriptor* next = FindField(*message, name);
    if (next == nullptr) {
      error = absl::StrCat("a job's spec has no field \"", JoinPath(path, name), "\"",
                           DidYouMean(name, FieldNames(*message)));
      return {};
    }
    way.push_back(next);
    path = JoinPath(path, name);
    const bool holds = !next->is_repeated() && KindOf(*next) == Kind::kMessage;
    message = holds ? next->message_type() : nullptr;
  }
  return way;
}

// The union of a field that holds one of several members; null: it is no such field.
const OneofDescriptor* UnionOf(const FieldDescriptor& field) {
  if (field.is_repeated() || KindOf(field) != Kind::kMessage) return nullptr;
  const auto unions = UnionsOf(*field.message_type());
  return unions.empty() ? nullptr : unions[0];
}

bool IsNumber(const FieldDescriptor& field) {
  const Kind kind = KindOf(field);
  return !field.is_repeated() &&
         (kind == Kind::kInteger || kind == Kind::kNumber || kind == Kind::kDuration);
}

// All that may be said of a field in words; nothing: anything.
std::optional<std::vector<std::string>> ChoicesOf(const FieldDescriptor& field) {
  if (const OneofDescriptor* oneof = UnionOf(field)) return MemberNames(*oneof);
  if (KindOf(field) == Kind::kEnum) return EnumTexts(*field.enum_type());
  if (KindOf(field) == Kind::kBoolean) return std::vector<std::string>{"false", "true"};
  return std::nullopt;
}

bool CanBeBounded(const FieldDescriptor& field) {
  if (field.is_repeated() || KindOf(field) == Kind::kRawJson) return false;
  return KindOf(field) != Kind::kMessage || UnionOf(field) != nullptr;
}

// What is wrong with a bound of a field that there is; empty: nothing.
std::string Contradiction(const FieldBound& bound, const FieldDescriptor& field) {
  const bool range = bound.has_minimum() || bound.has_maximum();
  if (!range && bound.allowed().empty()) {
    return "bounds nothing; give minimum, maximum or allowed";
  }
  if (range && !bound.allowed().empty()) {
    return "has a range and a list; give minimum and maximum, or allowed";
  }
  if (range && !IsNumber(field)) return "is no number or duration; give allowed instead";
  for (const double limit : {bound.minimum(), bound.maximum()}) {
    if (!std::isfinite(limit)) return "must be bounded by numbers";
  }
  if (bound.has_minimum() && bound.has_maximum() && bound.minimum() > bound.maximum()) {
    return absl::StrCat("no job can keep both: minimum ", NumberText(bound.minimum()),
                        " is more than maximum ", NumberText(bound.maximum()));
  }
  const v1alpha1::FieldRules& rules = RulesOf(field);
  if (bound.has_minimum() && rules.has_maximum() && bound.minimum() > rules.maximum()) {
    return absl::StrCat("no job can keep it: the field itself is at most ",
                        NumberText(rules.maximum()));
  }
  if (bound.has_maximum() && rules.has_minimum() && bound.maximum() < rules.minimum()) {
    return absl::StrCat("no job can keep it: the field itself is at least ",
                        NumberText(rules.minimum()));
  }
  const auto choices = ChoicesOf(field);
  for (const std::string& allowed : bound.allowed()) {
    double number = 0;
    if (IsNumber(field) && !absl::SimpleAtod(allowed, &number)) {
      return absl::StrCat("\"", allowed, "\" is no number");
    }
    if (choices && std::find(choices->begin(), choices->end(), allowed) == choices->end()) {
      return absl::StrCat("there is no \"", allowed, "\" to be allowed; there are ",
                          absl::StrJoin(*choices, ", "), DidYouMean(allowed, *choices));
    }
  }
  return "";
}

void CheckFieldBound(const FieldBound& bound, const std::string& path, FieldErrors& errors) {
  const std::string at = JoinPath(path, "field");
  std::string error;
  const FieldWay way = FieldWayOf(bound.field(), error);
  if (way.empty()) {
    errors.push_back({at, error});
  } else if (way.front()->json_name() == "templateRef") {
    errors.push_back({at, "is the job's choice of this very template; bound something else"});
  } else if (!CanBeBounded(*way.back())) {
    errors.push_back({at, "spec." + bound.field() +
                              " is no single value; bound one below it, or pods by bounds.pods"});
  } else if (std::find(std::begin(kScaled), std::end(kScaled), bound.field()) !=
             std::end(kScaled)) {
    errors.push_back({at, "scaling changes spec." + bound.field() +
                              " and knows minReplicas and maxReplicas alone; bound those"});
  } else if (std::string wrong = Contradiction(bound, *way.back()); !wrong.empty()) {
    errors.push_back({path, "of spec." + bound.field() + ": " + wrong});
  }
}

// A field's value as a number and as text.
struct BoundedValue {
  std::optional<double> number;
  std::string text;
};

// Nothing: it is not given. The message around it is there.
std::optional<BoundedValue> BoundedValueOf(const Message& message, const FieldDescriptor& field) {
  const auto& reflection = *message.GetReflection();
  if (!reflection.HasField(message, &field)) return std::nullopt;
  switch (KindOf(field)) {
    case Kind::kInteger: {
      const double number = field.cpp_type() == FieldDescriptor::CPPTYPE_INT32
                                ? reflection.GetInt32(message, &field)
                                : static_cast<double>(reflection.GetInt64(message, &field));
      return BoundedValue{number, NumberText(number)};
    }
    case Kind::kNumber: {
      const double number = reflection.GetDouble(message, &field);
      return BoundedValue{number, NumberText(number)};
    }
    case Kind::kDuration: {
      google::protobuf::Duration duration;
      duration.CopyFrom(reflection.GetMessage(message, &field));
      return BoundedValue{static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9,
                          FormatDuration(duration)};
    }
    case Kind::kBoolean:
      return BoundedValue{std::nullopt, reflection.GetBool(message, &field) ? "true" : "false"};
    case Kind::kEnum:
      return BoundedValue{std::nullopt, EnumText(*reflection.GetEnum(message, &field))};
    case Kind::kMessage: {
      const Message& holder = reflection.GetMessage(message, &field);
      std::vector<const FieldDescriptor*> present;
      holder.GetReflection()->ListFields(holder, &present);
      for (const FieldDescriptor* member : present) {
        if (UnionWith(*member) != UnionOf(field)) continue;
        return BoundedValue{std::nullopt, member->json_name()};
      }
      return std::nullopt;
    }
    default:
      return BoundedValue{std::nullopt, reflection.GetString(message, &field)};
  }
}

std::string LimitsOf(const FieldBound& bound, const FieldDescriptor& field) {
  if (!bound.allowed().empty()) return absl::StrCat("only ", absl::StrJoin(bound.allowed(), ", "));
  const std::string unit = KindOf(field) == Kind::kDuration ? " s" : "";
  std::string text;
  if (bound.has_minimum()) absl::StrAppend(&text, "at least ", NumberText(bound.minimum()), unit);
  if (bound.has_maximum()) {
    absl::StrAppend(&text, text.empty() ? "" : " and ", "at most ", NumberText(bound.maximum()),
                    unit);
  }
  return text;
}

bool IsWithin(const FieldBound& bound, const BoundedValue& value) {
  if (value.number && bound.has_minimum() && *value.number < bound.minimum()) return false;
  if (value.number && bound.has_maximum() && *value.number > bound.maximum()) return false;
  if (bound.allowed().empty()) return true;
  return std::any_of(bound.allowed().begin(), bound.allowed().end(),
                     [&](const std::string& allowed) {
                       double number = 0;
                       if (value.number && absl::SimpleAtod(allowed, &number))
                         return number == *value.number;
                       return allowed == value.text;
                     });
}

void CheckField(const FieldBound& bound, const Message& spec, std::string_view path,
                const std::string& who, Absent absent, FieldErrors& errors) {
  std::string error;
  const FieldWay way = FieldWayOf(bound.field(), error);
  if (way.empty() || !CanBeBounded(*way.back())) return;  // the template was checked before
  const Message* message = &spec;
  for (std::size_t i = 0; i + 1 < way.size(); ++i) {
    // What the job does not have at all needs no bound.
    if (!message->GetReflection()->HasField(*message, way[i])) return;
    message = &message->GetReflection()->GetMessage(*message, way[i]);
  }
  const std::optional<BoundedValue> value = BoundedValueOf(*message, *way.back());
  if (value && IsWithin(bound, *value)) return;
  if (!value && absent == Absent::kPassed) return;
  errors.push_back(
      {absl::StrCat(std::string(path), ".", bound.field()),
       absl::StrCat("is ", value ? value->text : "not given", ", and ", who, " allows ",
                    LimitsOf(bound, *way.back()), value ? "" : "; give it")});
}

const Json& PartOf(const Json& object, const char* name) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

// Of one container, or of the pod as a whole.
struct Holder {
  const Json& object;
  std::string path;
  bool container;
};

void CheckResources(const PodBounds& bounds, const Holder& holder, const std::string& who,
                    Absent absent, FieldErrors& errors) {
  const std::string at = JoinPath(holder.path, "resources");
  for (const auto& [resource, most] : bounds.max_resources()) {
    bool limited = false;
    for (const char* kind : {"requests", "limits"}) {
      const Json& given =
          PartOf(PartOf(PartOf(holder.object, "resources"), kind), resource.c_str());
      if (given.is_null()) continue;
      limited = limited || kind == std::string_view("limits");
      const std::string text = given.is_string() ? given.get<std::string>() : json::Dump(given);
      const auto amount = ParseQuantity(text);
      if (amount && *amount <= ParseQuantity(most).value_or(0)) continue;
      errors.push_back(
          {JoinPath(JoinPath(at, kind), resource),
           absl::StrCat("is ", text.substr(0, 64), ", and ", who, " allows at most ", most)});
    }
    const bool needs =
        std::find(std::begin(kUnlimited), std::end(kUnlimited), resource) != std::end(kUnlimited);
    if (limited || !needs || !holder.container || absent == Absent::kPassed) continue;
    errors.push_back({JoinPath(JoinPath(at, "limits"), resource),
                      absl::StrCat("is not given, so that nothing bounds it, and ", who,
                                   " allows at most ", most, "; give a limit")});
  }
}

bool ImageFits(const PodBounds& bounds, const std::string& image) {
  return std::any_of(bounds.images().begin(), bounds.images().end(), [&](const std::string& fit) {
    if (!fit.ends_with('*')) return image == fit;
    return image.starts_with(fit.substr(0, fit.size() - 1));
  });
}

void CheckImage(const PodBounds& bounds, const Holder& holder, const std::string& who,
                FieldErrors& errors) {
  const Json& image = PartOf(holder.object, "image");
  if (bounds.images().empty() || image.is_null()) return;
  const std::string text = image.is_string() ? image.get<std::string>() : json::Dump(image);
  if (image.is_string() && ImageFits(bounds, text)) return;
  errors.push_back({JoinPath(holder.path, "image"),
                    absl::StrCat("is ", text.substr(0, 256), ", and ", who, " allows only ",
                                 absl::StrJoin(bounds.images(), ", "))});
}

// One role of a spec: its path, its pod template.
void CheckRoles(const PodBounds& bounds, const v1alpha1::TrainingJobSpec& spec,
                std::string_view path, const std::string& who, Absent absent, FieldErrors& errors) {
  const v1alpha1::ReplicaSpecs& roles = spec.replica_specs();
  const auto check = [&](const char* role, const std::string& text) {
    const FieldErrors found = CheckPodsKept(
        bounds, text, absl::StrCat(std::string(path), ".replicaSpecs.", role, ".template"), who,
        absent);
    errors.insert(errors.end(), found.begin(), found.end());
  };
  if (!spec.workload().has_container()) check("coordinator", roles.coordinator().template_());
  check("worker", roles.worker().template_());
  if (spec.exchange().has_parameter_server()) {
    check("parameterServer", roles.parameter_server().template_());
  }
  const auto memory = bounds.max_resources().find("memory");
  if (memory == bounds.max_resources().end() || !roles.worker().has_on_out_of_memory()) return;
  const std::string& grown = roles.worker().on_out_of_memory().maximum();
  if (ParseQuantity(grown).value_or(0) <= ParseQuantity(memory->second).value_or(0)) return;
  errors.push_back({absl::StrCat(std::string(path), ".replicaSpecs.worker.onOutOfMemory.maximum"),
                    absl::StrCat("is ", grown, ", and ", who, " allows at most ", memory->second)});
}

}  // namespace

FieldErrors CheckBoundsAlone(const v1alpha1::TemplateBounds& bounds, std::string_view path) {
  FieldErrors errors;
  std::set<std::string> seen;
  for (int i = 0; i < bounds.fields_size(); ++i) {
    const std::string at = JoinPath(JoinPath(path, "fields"), static_cast<std::size_t>(i));
    if (!seen.insert(bounds.fields(i).field()).second) {
      errors.push_back({JoinPath(at, "field"), "is bounded twice; say all of it in one place"});
      continue;
    }
    CheckFieldBound(bounds.fields(i), at, errors);
  }
  const std::string pods = JoinPath(path, "pods");
  for (const auto& [resource, most] : bounds.pods().max_resources()) {
    if (ParseQuantity(most)) continue;
    errors.push_back({JoinPath(JoinPath(pods, "maxResources"), resource),
                      "must be a Kubernetes quantity such as 500m or 2Gi, and not negative"});
  }
  for (int i = 0; i < bounds.pods().images_size(); ++i) {
    const std::string& image = bounds.pods().images(i);
    if (!image.empty() && image.find('*') >= image.size() - 1) continue;
    errors.push_back({JoinPath(JoinPath(pods, "images"), static_cast<std::size_t>(i)),
                      "must be an image, or the beginning of one and then *"});
  }
  return errors;
}

FieldErrors CheckKept(const v1alpha1::TemplateBounds& bounds, const v1alpha1::TrainingJobSpec& spec,
                      std::string_view path, const std::string& who, Absent absent) {
  FieldErrors errors;
  for (const FieldBound& bound : bounds.fields()) {
    CheckField(bound, spec, path, who, absent, errors);
  }
  if (bounds.has_pods()) CheckRoles(bounds.pods(), spec, path, who, absent, errors);
  return errors;
}

FieldErrors CheckPodsKept(const PodBounds& bounds, const std::string& pod_template,
                          std::string_view path, const std::string& who, Absent absent) {
  const auto parsed = json::Parse(pod_template.empty() ? "{}" : pod_template);
  if (!parsed.ok()) return {};  // whoever reads templates says so
  const Json& spec = PartOf(*parsed, "spec");
  const std::string spec_path = JoinPath(path, "spec");
  std::vector<Holder> holders = {{spec, spec_path, false}};
  bool trainer = false;
  for (const char* list : {"initContainers", "containers"}) {
    const Json& containers = PartOf(spec, list);
    for (std::size_t i = 0; containers.is_array() && i < containers.size(); ++i) {
      trainer = trainer || PartOf(containers[i], "name") == Json("trainer");
      holders.push_back({containers[i], JoinPath(JoinPath(spec_path, list), i), true});
    }
  }
  static const Json kNothing = Json::object();
  if (!trainer) holders.push_back({kNothing, absl::StrCat(spec_path, ".containers.trainer"), true});
  FieldErrors errors;
  for (const Holder& holder : holders) {
    CheckResources(bounds, holder, who, absent, errors);
    if (holder.container) CheckImage(bounds, holder, who, errors);
  }
  return errors;
}

}  // namespace starling::spec

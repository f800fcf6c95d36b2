// SPDX-License-Identifier: Apache-2.0
#include "api/spec/template.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "api/spec/contract.h"
#include "api/spec/job_file.h"
#include "api/spec/merge_pod_template.h"
#include "api/spec/pod_template.h"
#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "api/spec/template_bounds.h"
#include "api/spec/writer.h"
#include "common/json/json.h"
#include "google/protobuf/message.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_template.pb.h"

namespace starling::spec {
namespace {

using google::protobuf::Message;
using Json = nlohmann::json;
using v1alpha1::TrainingJobSpec;

// What a template is to jobs, read.
struct Gifts {
  v1alpha1::TrainingTemplateSpec spec;
  TrainingJobSpec defaults;
};

const Json& MemberAt(const Json& object, const char* name) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(name);
  return found == object.end() ? kNone : *found;
}

std::string TextAt(const Json& object, const char* name) {
  const Json& value = MemberAt(object, name);
  return value.is_string() ? value.get<std::string>() : std::string();
}

const Json& NoteOf(const Json& job) {
  return MemberAt(MemberAt(MemberAt(job, "metadata"), "annotations"), kTemplateNote);
}

bool NamesTemplate(const Json& job) {
  return MemberAt(MemberAt(job, "spec"), "templateRef").is_object();
}

std::string KindOfRef(const v1alpha1::TemplateRef& ref) {
  return ref.kind() == v1alpha1::TEMPLATE_KIND_CLUSTER_TRAINING_TEMPLATE ? kClusterTrainingTemplate
                                                                         : kTrainingTemplate;
}

std::string Who(const std::string& kind, const std::string& name) {
  return absl::StrCat(kind, " \"", name, "\"");
}

// Values that the schema itself gives every job before a template is looked at.
void CheckSchemaDefaults(const Message& message, const std::string& path, FieldErrors& errors) {
  std::vector<const FieldDescriptor*> present;
  message.GetReflection()->ListFields(message, &present);
  for (const FieldDescriptor* field : present) {
    const std::string at = JoinPath(path, field->json_name());
    if (!field->is_repeated() && KindOf(*field) == Kind::kMessage) {
      CheckSchemaDefaults(message.GetReflection()->GetMessage(message, field), at, errors);
    } else if (RulesOf(*field).schema_default()) {
      errors.push_back({at,
                        "every job has it, by the schema's own default; leave it out here and "
                        "write it into the job"});
    }
  }
}

FieldErrors ReadDefaults(const v1alpha1::TrainingTemplateSpec& spec, TrainingJobSpec& out) {
  if (spec.defaults().empty()) return {};
  const auto value = json::Parse(spec.defaults());
  if (!value.ok()) return {{"spec.defaults", std::string(value.status().message())}};
  FieldErrors errors = ReadMessage(*value, "spec.defaults", out, {.check_required = false});
  if (!errors.empty()) return errors;
  if (out.has_template_ref()) {
    errors.push_back(
        {"spec.defaults.templateRef", "one template cannot name another; leave it out"});
  }
  CheckSchemaDefaults(out, "spec.defaults", errors);
  return errors;
}

FieldErrors ReadTemplateSpec(const Json& spec, Gifts& out) {
  FieldErrors errors = ReadMessage(spec, "spec", out.spec);
  if (!errors.empty()) return errors;
  if (const std::size_t size = json::Dump(spec).size(); size > kLargestTemplate) {
    return {{"spec", absl::StrCat("is ", size, " bytes large; a template has at most ",
                                  kLargestTemplate, ", for it is noted in each of its jobs")}};
  }
  return ReadDefaults(out.spec, out.defaults);
}

// What it gives is within what it allows.
void CheckOwnGifts(const Gifts& given, FieldErrors& errors) {
  const v1alpha1::TemplateBounds& bounds = given.spec.bounds();
  const auto add = [&errors](const FieldErrors& found) {
    errors.insert(errors.end(), found.begin(), found.end());
  };
  add(CheckKept(bounds, given.defaults, "spec.defaults", "this very template", Absent::kPassed));
  if (given.spec.pod_template().empty()) return;
  add(CheckPodTemplate(given.spec.pod_template(), "spec.podTemplate"));
  if (!errors.empty() || !bounds.has_pods()) return;
  add(CheckPodsKept(bounds.pods(), given.spec.pod_template(), "spec.podTemplate",
                    "this very template", Absent::kPassed));
}

std::string Merged(const std::string& base, const std::string& patch) {
  if (base.empty()) return patch;
  if (patch.empty()) return base;
  auto under = json::Parse(base);
  const auto over = json::Parse(patch);
  if (!under.ok() || !over.ok()) return patch;  // whoever checks templates says so
  return json::Dump(MergePodTemplate(*std::move(under), *over, Nulls::kKeep));
}

// The role's own template, over that of the template's defaults, over the one for all roles.
template <typename Role>
void LayTemplate(const std::string& all, const std::string& defaults, const std::string& own,
                 Role& role) {
  const std::string merged = Merged(all, Merged(defaults, own));
  if (!merged.empty()) role.set_template_(merged);
}

void LayTemplates(const Gifts& given, const TrainingJobSpec& own, TrainingJobSpec& filled) {
  const std::string& all = given.spec.pod_template();
  const v1alpha1::ReplicaSpecs &defaults = given.defaults.replica_specs(),
                               &written = own.replica_specs();
  v1alpha1::ReplicaSpecs& roles = *filled.mutable_replica_specs();
  LayTemplate(all, defaults.worker().template_(), written.worker().template_(),
              *roles.mutable_worker());
  if (!filled.workload().has_container()) {
    LayTemplate(all, defaults.coordinator().template_(), written.coordinator().template_(),
                *roles.mutable_coordinator());
  }
  const TrainingJobSpec resolved = Resolve(filled);
  if (!resolved.exchange().has_parameter_server()) return;
  // Of servers that nobody has spoken of there are as many as copies; a template for them must not
  // make it fewer.
  if (!roles.has_parameter_server()) {
    roles.mutable_parameter_server()->set_replicas(
        resolved.replica_specs().parameter_server().replicas());
  }
  LayTemplate(all, defaults.parameter_server().template_(), written.parameter_server().template_(),
              *roles.mutable_parameter_server());
}

TrainingJobSpec Filled(const Gifts& given, const TrainingJobSpec& own) {
  TrainingJobSpec filled = given.defaults;
  Overlay(own, filled);
  LayTemplates(given, own, filled);
  return filled;
}

Json MakeNote(const Json& found, const v1alpha1::TemplateRef& ref) {
  Json note = {{"kind", KindOfRef(ref)}, {"name", ref.name()}, {"spec", MemberAt(found, "spec")}};
  for (const char* field : {"uid", "generation"}) {
    const Json& value = MemberAt(MemberAt(found, "metadata"), field);
    if (!value.is_null()) note[field] = value;
  }
  return note;
}

// The note of a job, if it is one of the template that the job names; null: it is not.
Json ReadNote(const Json& job, const v1alpha1::TemplateRef& ref) {
  const Json& text = NoteOf(job);
  if (!text.is_string()) return nullptr;
  auto note = json::Parse(text.get_ref<const std::string&>());
  if (!note.ok() || TextAt(*note, "name") != ref.name() ||
      TextAt(*note, "kind") != KindOfRef(ref)) {
    return nullptr;
  }
  return *std::move(note);
}

FieldErrors LookUp(const Json& job, const v1alpha1::TemplateRef& ref, const FindTemplate& find,
                   Json& note) {
  const std::string who = Who(KindOfRef(ref), ref.name());
  const auto found =
      find({KindOfRef(ref), TextAt(MemberAt(job, "metadata"), "namespace"), ref.name()});
  if (absl::IsNotFound(found.status())) {
    return {{"spec.templateRef.name",
             absl::StrCat("there is no ", who, ": ", std::string(found.status().message()))}};
  }
  if (!found.ok()) {
    return {{"spec.templateRef",
             absl::StrCat(who, " cannot be read: ", std::string(found.status().message()))}};
  }
  const FieldErrors wrong = CheckTemplate(*found, nullptr);
  if (!wrong.empty()) {
    return {{"spec.templateRef",
             absl::StrCat(who, " is wrong, tell whoever keeps it: ", Format({wrong.front()}))}};
  }
  note = MakeNote(*found, ref);
  return {};
}

void EraseNote(Json& job) {
  if (NoteOf(job).is_null()) return;
  Json& annotations = job["metadata"]["annotations"];
  annotations.erase(kTemplateNote);
  if (annotations.empty()) job["metadata"].erase("annotations");
}

}  // namespace

FieldErrors CheckTemplate(const Json& object, const Json* old) {
  if (old != nullptr && MemberAt(object, "spec") == MemberAt(*old, "spec")) return {};
  const std::string name = TextAt(MemberAt(object, "metadata"), "name");
  if (!FullMatch(name, "[a-z]([-a-z0-9]*[a-z0-9])?") || name.size() > 40) {
    return {{"metadata.name",
             "must begin with a lower-case letter and go on with lower-case letters, digits and "
             "'-', at most 40 of them, for jobs name it so"}};
  }
  if (MemberAt(object, "spec").is_null()) return {{"spec", "is required and missing"}};
  Gifts given;
  FieldErrors errors = ReadTemplateSpec(MemberAt(object, "spec"), given);
  if (!errors.empty()) return errors;
  errors = CheckBoundsAlone(given.spec.bounds(), "spec.bounds");
  if (errors.empty()) CheckOwnGifts(given, errors);
  return errors;
}

FieldErrors ApplyTemplate(Json& job, const Json* old, const FindTemplate& find) {
  if (!NamesTemplate(job)) {
    EraseNote(job);
    return {};
  }
  v1alpha1::TrainingJob read;
  if (!ReadStoredJob(job, read).empty()) return {};
  const v1alpha1::TemplateRef& ref = read.spec().template_ref();
  Json note;
  if (old == nullptr) {
    FieldErrors errors = LookUp(job, ref, find, note);
    if (!errors.empty()) return errors;
  } else {
    note = ReadNote(*old, ref);
  }
  if (note.is_null()) {  // CheckBounds says what that means
    EraseNote(job);
    return {};
  }
  Gifts given;
  FieldErrors errors = ReadTemplateSpec(MemberAt(note, "spec"), given);
  if (!errors.empty()) return errors;
  job["spec"] = WriteMessage(Filled(given, read.spec()));
  Json& annotations = job["metadata"]["annotations"];
  if (!annotations.is_object()) annotations = Json::object();
  annotations[kTemplateNote] = json::Dump(note);
  return {};
}

FieldErrors CheckBounds(const Json& job, const TrainingJobSpec& resolved) {
  if (!resolved.has_template_ref()) return {};
  const v1alpha1::TemplateRef& ref = resolved.template_ref();
  const std::string who = Who(KindOfRef(ref), ref.name());
  const Json note = ReadNote(job, ref);
  Gifts given;
  if (note.is_null() || !ReadTemplateSpec(MemberAt(note, "spec"), given).empty()) {
    return {
        {"spec.templateRef",
         absl::StrCat(who,
                      " was not applied when the job was made: templates are applied where jobs "
                      "are admitted, in a cluster by the webhook; submit the job anew")}};
  }
  return CheckKept(given.spec.bounds(), resolved, "spec", who, Absent::kRefused);
}

}  // namespace starling::spec

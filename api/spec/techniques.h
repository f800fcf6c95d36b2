// SPDX-License-Identifier: Apache-2.0
// The table of techniques: for each choice that a job file offers, what it needs beside it and what
// it does not go with, with the reason in words.
//
// A technique is a field of the spec. It is chosen when the field is on: a message that is present,
// a boolean that is true, a number other than 0, an enumeration's value other than the default, a
// string that is given. Whether a job may have two techniques together is said here and nowhere
// else: Validate refuses by this table, the CRD's rules are made from it as far as the API server's
// language can say them, and `starling explain` and the reference page print it beside the field.
//
// To add a technique: its field in the schema, and one row here. To allow what is refused as not
// built yet: remove `pending` from its row. What depends on a number's value (a batch that portions
// must divide) is no technique and stands in validate.cc.
#pragma once

#include <string>
#include <vector>

#include "api/spec/contract.h"
#include "api/spec/field_error.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::spec {

// One thing that a technique needs, or does not go with. Paths are below spec
// ("exchange.parameterServer"). The words continue an error that names the fields:
//   needs spec.A or spec.B, <why>; <remedy>
//   does not go with spec.A, <why>; <remedy>
struct TechniqueRule {
  enum class Kind { kNeeds, kExcludes } kind = Kind::kNeeds;
  std::vector<std::string> fields;  // needed: one of them; excluded: each of them
  std::string why;
  std::string remedy;
  // Only beside one of these; empty: always.
  std::vector<std::string> beside = {};

  bool operator==(const TechniqueRule&) const = default;
};

struct Technique {
  std::string field;
  std::vector<TechniqueRule> rules = {};
  // Not empty: the schema has it and the trainer does not. What the error says after "is".
  std::string pending = {};
  // Chosen by its mere presence, also as false: beside the wrong workload it has no meaning at all.
  bool by_presence = false;
};

const std::vector<Technique>& Techniques();

// Whether the field at `path` below spec is on, as the head of this file says. `path` must exist.
bool IsOn(const v1alpha1::TrainingJobSpec& spec, const std::string& path, bool by_presence = false);

// Errors of all chosen techniques, one for each at most, on the technique's field. Where a field is
// refused, those below it are not mentioned, and where a preset is, what it has set is not. `spec`
// is resolved. `table` is for tests.
FieldErrors CheckTechniques(const v1alpha1::TrainingJobSpec& spec,
                            const std::vector<Technique>& table = Techniques());

// The error's words when a rule is broken; of an excluding one by `excluded`, one of its fields.
std::string WordsOf(const TechniqueRule& rule, const std::string& excluded = {});
std::string WordsOfPending(const Technique& technique);

// Descriptors from below spec to the field; the process ends where the schema has no such path.
std::vector<const FieldDescriptor*> WayTo(const std::string& path);

// What the reference page and `explain` say of a field by the table: "needs a or b", "not with c".
// Rules of both directions are told at both fields.
std::vector<std::string> TechniqueTexts(const FieldDescriptor& field);

}  // namespace starling::spec

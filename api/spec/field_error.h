// SPDX-License-Identifier: Apache-2.0
// What is wrong with one field of an object, and how all of it is told.
//
// Every check of the contract returns a list of these, so that a user sees all mistakes at once,
// each with the path of its field and the remedy.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace starling::spec {

struct FieldError {
  std::string path;     // as the user wrote it: spec.replicaSpecs.worker.replicas, spec.shape[2]
  std::string message;  // without a full stop: what is wrong and what to do

  friend bool operator==(const FieldError&, const FieldError&) = default;
};

using FieldErrors = std::vector<FieldError>;

// One error a line: `path: message`, in the order given, with no newline at the end.
std::string Format(const FieldErrors& errors);

// OK if there are none, else InvalidArgument with the formatted errors.
absl::Status ToStatus(const FieldErrors& errors);

// `, did you mean "x"?` with the candidate nearest to `word`; empty if none is near.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& candidates);

// `parent.child`, or `child` if `parent` is empty; a key with unusual characters is put in
// brackets.
std::string JoinPath(std::string_view parent, std::string_view child);
std::string JoinPath(std::string_view parent, std::size_t index);

}  // namespace starling::spec

// SPDX-License-Identifier: Apache-2.0
// Why a request was refused, in the form that all of REST's errors have: problem details (RFC
// 9457) with a code for programs, a sentence and a remedy for people, and the fields that are
// wrong, by the same paths and words as the CLI prints.
//
// To add a code: a row in the table of problem.cc, and its name to the routes that give it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "api/spec/field_error.h"
#include "nlohmann/json_fwd.hpp"

namespace starling::rest {

// One row of the table of codes.
struct ProblemKind {
  std::string_view code;  // CamelCase
  int status;             // of HTTP
  std::string_view title;
  std::string_view remedy;  // where the request itself gives no better one
};
const std::vector<ProblemKind>& ProblemKinds();
// Null: there is no such code.
const ProblemKind* FindProblem(std::string_view code);

struct Problem {
  const ProblemKind* kind;
  std::string detail;
  std::string remedy;  // empty: the kind's
  spec::FieldErrors errors;
  std::vector<std::pair<std::string, std::string>> headers;  // such as Allow, Retry-After

  int status() const { return kind->status; }
};

// `code` must be in the table.
Problem MakeProblem(std::string_view code, std::string detail, std::string remedy = "");
Problem InvalidJob(spec::FieldErrors errors);

// Of what the store answered: its codes are those of controller/kube/kube_client.h. A refused job
// has its fields' errors taken apart again.
Problem FromStatus(const absl::Status& status);

// The code for what the server refuses before any route is known.
std::string_view CodeOfHttpStatus(int status);

nlohmann::json ToJson(const Problem& problem, std::string_view request_id);

// spec.stop.epochs, spec.shape[2], metadata.labels[a/b] as the pointer of a URI fragment.
std::string PointerOf(std::string_view path);

}  // namespace starling::rest

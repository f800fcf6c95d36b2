// SPDX-License-Identifier: Apache-2.0
// The body of a request as a value.
#pragma once

#include <variant>

#include "api/rest/problem.h"
#include "common/http/message.h"
#include "controller/kube/kube_client.h"

namespace starling::service {

enum class BodyForms { kJson, kJsonOrYaml, kMergePatch };

// Strict and within limits: see common/json and api/yaml. The Content-Type must be one of the form;
// without one the body is JSON.
std::variant<kube::Json, rest::Problem> ReadBody(const http::Request& request, BodyForms forms);

}  // namespace starling::service

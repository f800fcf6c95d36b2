// SPDX-License-Identifier: Apache-2.0
// The route table as documents: the paths and messages of OpenAPI 3.1, and a page for people.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"

namespace starling::rest {

// The value of `paths`.
nlohmann::json OpenApiPaths();
// The messages that are REST's own, by name; TrainingJob is the contract's (api/schema).
nlohmann::json OpenApiSchemas();
// docs/reference/rest.md.
std::string ReferencePage();

}  // namespace starling::rest

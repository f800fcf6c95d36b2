// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <utility>

#include "api/spec/merge_pod_template.h"
#include "controller/resources/resources.h"

namespace starling::resources {

Json MergeTemplate(Json base, const Json& patch) {
  return spec::MergePodTemplate(std::move(base), patch);
}

}  // namespace starling::resources

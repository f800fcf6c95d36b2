// SPDX-License-Identifier: Apache-2.0
// What the group objects of all gang schedulers have in common.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "controller/scheduling/gang.h"

namespace starling::scheduling {

// A group without its spec, named as the job.
inline Json Group(const Gang& gang, const kube::ResourceKind& kind) {
  return {{"apiVersion", kind.ApiVersion()},
          {"kind", std::string(kind.kind)},
          {"metadata",
           {{"name", gang.job.name},
            {"namespace", gang.job.ns},
            {"labels",
             {{std::string(resources::kJobLabel), gang.job.name},
              {"app.kubernetes.io/managed-by", "starling-controller"}}},
            {"ownerReferences", Json::array({gang.owner})}}}};
}

inline void SetSchedulerName(Json& patch, const Gang& gang, const std::string& otherwise) {
  const std::string& name = gang.scheduler_name.empty() ? otherwise : gang.scheduler_name;
  if (!name.empty()) patch["spec"]["schedulerName"] = name;
}

}  // namespace starling::scheduling

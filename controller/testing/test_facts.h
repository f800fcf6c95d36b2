// SPDX-License-Identifier: Apache-2.0
// A job as the tests of this folder tell of it: a coordinator and four workers, of which it needs
// two.
#pragma once

#include <string>

#include "controller/scheduling/facts.h"

namespace starling::scheduling {

inline Json TestPod(const std::string& role, const std::string& index, const std::string& memory) {
  return {{"metadata",
           {{"name", "digits-" + role + "-" + index},
            {"labels",
             {{"starling.dev/job", "digits"},
              {"starling.dev/role", role},
              {"starling.dev/index", index}}}}},
          {"spec",
           {{"restartPolicy", "Never"},
            {"hostname", "digits-" + role + "-" + index},
            {"volumes", Json::array({{{"name", "secret"}}})},
            {"containers", Json::array({{{"name", "trainer"},
                                         {"image", "starling:1"},
                                         {"env", Json::array({{{"name", "POD_NAME"}}})},
                                         {"resources", {{"requests", {{"memory", memory}}}}}}})}}}};
}

inline JobFacts TestFacts() {
  JobFacts facts;
  facts.job = {.ns = "team", .name = "digits", .uid = "uid-1"};
  facts.owner = {{"apiVersion", "starling.dev/v1alpha1"},
                 {"kind", "TrainingJob"},
                 {"name", "digits"},
                 {"uid", "uid-1"},
                 {"controller", true},
                 {"blockOwnerDeletion", true}};
  facts.labels = {{"kueue.x-k8s.io/queue-name", "research"}};
  facts.roles = {{.role = resources::Role::kCoordinator,
                  .pod = TestPod("coordinator", "0", "64Mi"),
                  .wanted = 1,
                  .least = 1},
                 {.role = resources::Role::kWorker,
                  .pod = TestPod("worker", "0", "1Gi"),
                  .wanted = 4,
                  .least = 2}};
  return facts;
}

}  // namespace starling::scheduling

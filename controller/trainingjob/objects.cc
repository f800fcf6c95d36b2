// SPDX-License-Identifier: Apache-2.0
// What the pods of a job mount, made before them: secret, service, frozen spec.
#include <algorithm>
#include <utility>
#include <vector>

#include "controller/trainingjob/policies.h"

namespace starling::trainingjob {

std::int64_t ConfigGeneration(const Pass& pass) {
  std::int64_t newest = -1;
  bool current = false;
  for (const ObservedConfig& config : pass.observed.configs) {
    if (config.generation < newest) continue;
    newest = config.generation;
    current = config.current;
  }
  return current ? newest : std::max(pass.observed.generation, newest + 1);
}

void EnsureObjects(Pass& pass) {
  std::vector<Action> missing;
  // A container of the user's gets none of our credentials.
  const bool secret = pass.observed.has_secret || pass.OwnContainer();
  if (!secret) missing.push_back(CreateSecret{});
  if (!pass.observed.has_service) missing.push_back(CreateService{});
  const bool budget = pass.options.budgets && !pass.OwnContainer();
  if (budget && !pass.observed.has_budget) missing.push_back(CreateBudget{Role::kWorker});
  if (budget && pass.HasServers() && !pass.observed.has_server_budget) {
    missing.push_back(CreateBudget{Role::kParameterServer});
  }
  const std::int64_t generation = ConfigGeneration(pass);
  const bool there =
      std::any_of(pass.observed.configs.begin(), pass.observed.configs.end(),
                  [&](const ObservedConfig& config) { return config.generation == generation; });
  if (!there) missing.push_back(CreateConfig{generation});
  // An object of somebody else with one of these names may stay for ever.
  if (!missing.empty() && pass.PutOff(RefusalDelay(pass))) return;
  for (Action& action : missing) pass.decision.actions.push_back(std::move(action));
}

}  // namespace starling::trainingjob

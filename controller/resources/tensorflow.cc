// SPDX-License-Identifier: Apache-2.0
// TF_CONFIG as tf.distribute's MultiWorkerMirroredStrategy reads it: worker 0 is the chief.
#include <nlohmann/json.hpp>

#include "controller/resources/rendezvous.h"

namespace starling::resources {

Variables TensorFlowVariables(const Rendezvous& rendezvous) {
  nlohmann::json workers = nlohmann::json::array();
  for (const Endpoint& worker : rendezvous.workers) workers.push_back(worker.ToString());
  const nlohmann::json config = {{"cluster", {{"worker", std::move(workers)}}},
                                 {"task", {{"type", "worker"}, {"index", rendezvous.rank}}}};
  return {{"TF_CONFIG", config.dump()}};
}

}  // namespace starling::resources

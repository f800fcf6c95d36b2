// SPDX-License-Identifier: Apache-2.0
#include "controller/resources/rendezvous.h"

namespace starling::resources {

Variables CommonVariables(const Rendezvous& rendezvous) {
  const Endpoint& master = rendezvous.workers.front();
  const auto pods = static_cast<std::int64_t>(rendezvous.workers.size());
  return {{"MASTER_ADDR", master.host},
          {"MASTER_PORT", std::to_string(master.port)},
          {"WORLD_SIZE", std::to_string(pods * rendezvous.processes)},
          {"RANK", std::to_string(rendezvous.rank * rendezvous.processes)},
          {"LOCAL_RANK", "0"},
          {"LOCAL_WORLD_SIZE", std::to_string(rendezvous.processes)},
          {"NODE_RANK", std::to_string(rendezvous.rank)},
          {"STARLING_ROUND", std::to_string(rendezvous.round)}};
}

}  // namespace starling::resources

// SPDX-License-Identifier: Apache-2.0
// torchrun takes every argument from a variable PET_<ARGUMENT> too. The rendezvous is the static
// one: the controller knows who is there, and the ranks that it gave stay.
#include "controller/resources/rendezvous.h"

namespace starling::resources {

Variables PyTorchVariables(const Rendezvous& rendezvous) {
  const Endpoint& master = rendezvous.workers.front();
  Variables variables = {{"PET_NNODES", std::to_string(rendezvous.workers.size())},
                         {"PET_NPROC_PER_NODE", std::to_string(rendezvous.processes)},
                         {"PET_NODE_RANK", std::to_string(rendezvous.rank)},
                         {"PET_MASTER_ADDR", master.host},
                         {"PET_MASTER_PORT", std::to_string(master.port)},
                         {"PET_RDZV_BACKEND", "static"},
                         {"PET_RDZV_ENDPOINT", master.ToString()},
                         {"PET_RDZV_ID", rendezvous.id},
                         // A failed process ends the round: the next one has fresh pods.
                         {"PET_MAX_RESTARTS", "0"},
                         // Otherwise a log of many workers comes in blocks, late.
                         {"PYTHONUNBUFFERED", "1"}};
  // Gloo would look this machine's name up and listen where that leads.
  if (rendezvous.local) variables.emplace_back("GLOO_SOCKET_IFNAME", "lo");
  return variables;
}

}  // namespace starling::resources

// SPDX-License-Identifier: Apache-2.0
// rabit's tracker and ps-lite's scheduler both belong on the worker of rank 0, whose program starts
// it. Every pod is a worker; a program that wants servers among them takes that from its rank.
#include "controller/resources/rendezvous.h"

namespace starling::resources {

Variables DmlcVariables(const Rendezvous& rendezvous) {
  const Endpoint& master = rendezvous.workers.front();
  const std::string port = std::to_string(master.port);
  const std::string rank = std::to_string(rendezvous.rank);
  return {
      {"DMLC_ROLE", "worker"},     {"DMLC_TRACKER_URI", master.host},
      {"DMLC_TRACKER_PORT", port}, {"DMLC_PS_ROOT_URI", master.host},
      {"DMLC_PS_ROOT_PORT", port}, {"DMLC_NUM_WORKER", std::to_string(rendezvous.workers.size())},
      {"DMLC_NUM_SERVER", "0"},    {"DMLC_TASK_ID", rank},
      {"DMLC_WORKER_ID", rank}};
}

}  // namespace starling::resources

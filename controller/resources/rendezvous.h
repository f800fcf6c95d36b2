// SPDX-License-Identifier: Apache-2.0
// The variables by which programs that are not ours find one another: one function a framework.
//
// A job that brings its own container runs in rounds: all its workers start together, and what they
// are told of each other holds until the round ends. Ranks are places in the round, not indexes of
// pods. To add a framework: a function here in a file of its own, a value in the proto's
// ContainerFramework, a row in container_pod.cc.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace starling::resources {

struct Endpoint {
  std::string host;
  int port = 0;

  std::string ToString() const { return host + ":" + std::to_string(port); }
};

// What one pod is told.
struct Rendezvous {
  std::string id;                 // of the round, unlike any other's
  std::int64_t round = 1;         // from 1
  std::int64_t rank = 0;          // of this pod
  std::int64_t processes = 1;     // in each pod
  std::vector<Endpoint> workers;  // by rank
  bool local = false;             // all pods are processes of this machine
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// rendezvous.cc: what every container gets: MASTER_ADDR, MASTER_PORT, WORLD_SIZE, RANK (of the
// pod's first process), LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, STARLING_ROUND.
Variables CommonVariables(const Rendezvous& rendezvous);

// pytorch.cc: PET_*, the arguments of torchrun.
Variables PyTorchVariables(const Rendezvous& rendezvous);

// tensorflow.cc: TF_CONFIG.
Variables TensorFlowVariables(const Rendezvous& rendezvous);

// dmlc.cc: DMLC_*, of rabit (XGBoost, LightGBM's fork of it) and ps-lite (MXNet, BytePS).
Variables DmlcVariables(const Rendezvous& rendezvous);

}  // namespace starling::resources

// SPDX-License-Identifier: Apache-2.0
// The pod of a job that brings its own container: the user's image and command, our supervisor.
//
// An init container copies the supervisor, a static program, from our image into a volume, and
// waits until the name of rank 0 resolves; the container's command is then run by it. So an image
// needs nothing of ours, and its end is told as that of our own roles: exit code, signal, out of
// memory, last lines of the log. In local mode there is no image: the command runs as a process.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "controller/resources/resources.h"

namespace starling::resources {

// The workers that start together. Rank = place in `members`.
struct Round {
  std::int64_t number = 1;            // from 1, rising
  std::vector<std::int64_t> members;  // indexes of pods
};

// What the workers of a job have in common, in whichever round: most of what they are, and of what
// it takes to build one. Of the defaults for our own roles they have the supervisor, the folder
// that outlives the container (the job's in local mode, shared by all workers; on the pod's own
// disk in a cluster; STARLING_JOB_DIR names it) and of the downward API's variables those that the
// template names, but none of the job's credentials, and no user, probes, ports or working folder:
// those are the template's and the image's. A value; copies share it.
class RoundPods {
 public:
  // Of the request only role, memory and nodes count. InvalidArgument as BuildPod, and where the
  // template has no command for the container "trainer".
  static absl::StatusOr<RoundPods> Make(const JobIdentity& job,
                                        const v1alpha1::TrainingJobSpec& resolved,
                                        const PodRequest& request, const Platform& platform);

  // One worker of that round; of the request what does not count for Make. InvalidArgument: it is
  // not in the round.
  absl::StatusOr<Json> Pod(const PodRequest& request, const Round& round) const;

 private:
  struct Parts;
  explicit RoundPods(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

// One of them alone, as BuildPod.
absl::StatusOr<Json> BuildContainerPod(const JobIdentity& job,
                                       const v1alpha1::TrainingJobSpec& resolved,
                                       const PodRequest& request, const Round& round,
                                       const Platform& platform);

}  // namespace starling::resources

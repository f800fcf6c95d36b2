// SPDX-License-Identifier: Apache-2.0
// When the parts of a gradient that are ready are pushed: at once, or as a bandwidth budget allows,
// the most useful first. To add a policy: a class in send_policy.cc, and its line in NewSendPolicy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::client {

// Confined to one thread. Slots are in it from Add until they are taken.
class SendPolicy {
 public:
  virtual ~SendPolicy() = default;
  // The part of a slot is ready: what its parameters are to change by, what they are now, and the
  // bytes that the push takes.
  virtual void Add(std::size_t slot, std::span<const float> change,
                   std::span<const float> parameters, std::size_t bytes) = 0;
  // The slots to push now, best first.
  virtual std::vector<std::uint64_t> Take(absl::Time now) = 0;
  // When Take may give something again; the infinite future if nothing waits.
  virtual absl::Time Next(absl::Time now) const = 0;
  // All that waits.
  virtual std::vector<std::uint64_t> TakeAll() = 0;
};

// That of the job's consistency model.
std::unique_ptr<SendPolicy> NewSendPolicy(const v1alpha1::TrainingJobSpec& spec);

}  // namespace starling::client

// SPDX-License-Identifier: Apache-2.0
// Exchanges in which all workers make a step together: one step's life, its side channel, its
// thread. Kinds differ in how a bucket becomes its sum. To add one: a Reduction in exchanges.cc.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "common/ranges/ranges.h"
#include "common/sync/mutex.h"
#include "trainer/collectives/communicator.h"
#include "trainer/exchange/bucket_schedule.h"
#include "trainer/exchange/bucket_tuner.h"
#include "trainer/exchange/exchange.h"
#include "trainer/exchange/side_channel.h"

namespace starling::exchange {

// Consecutive elements of the flat gradients: a bucket, or several that are reduced at once.
struct Bucket {
  int index = 0;  // of the first one
  ranges::Range<std::size_t> range;
};

// A step whose gradients can be computed with.
struct HostStep : Step {
  std::span<float> floats;  // `gradients`
  transport::Mesh* mesh = nullptr;
};

// How the gradients of a bucket become their sum: what differs between kinds of exchange.
class Reduction {
 public:
  virtual ~Reduction() = default;

  virtual ranges::Range<int> Groups(int rank, int /*size*/, int /*groups*/) const {
    return {rank, rank + 1};
  }
  // A view has begun; `mesh` is null, or has two ranks at least. All its ranks call it.
  virtual absl::Status Enter(transport::Mesh* /*mesh*/) { return absl::OkStatus(); }
  // How sums travel in that view.
  virtual std::optional<Path> path() const { return std::nullopt; }
  // How this bucket's sum travels there, a literal.
  virtual std::string_view WayOf(const Bucket& /*bucket*/) const { return ""; }
  // A step of this rank's `groups` begins.
  virtual absl::Status Begin(const HostStep& /*step*/, ranges::Range<int> /*groups*/) {
    return absl::OkStatus();
  }
  // `bucket` of step.gradients is complete for `group`. May be called by several threads at once,
  // for different buckets.
  virtual absl::Status Add(const HostStep& /*step*/, int /*group*/, const Bucket& /*bucket*/) {
    return absl::OkStatus();
  }
  // All groups of this rank have added `bucket`: leaves the sum there.
  virtual absl::Status Reduce(const HostStep& step, transport::Tag tag, const Bucket& bucket) = 0;

  // See Exchange. Most keep nothing.
  virtual void Settle(Fate /*fate*/) {}
  virtual std::span<float> residual() { return {}; }
  virtual void Adopted(bool /*from_checkpoint*/) {}
  virtual Volume volume() const { return {}; }
};

// See Exchange. Add and Cancel are thread-safe: buckets are reduced in the order of their indices
// at every rank, whatever the order of Adds, for collectives only match when all ranks issue them
// alike; autograd's readiness order need not be. A communication thread reduces while backward
// still computes; what is left when Finish is called, for small models everything, runs on the
// caller's thread and costs no wake-up.
class StepExchange final : public Exchange {
 public:
  // `tune`: how many buckets are reduced at once is tried out in each view (bucket_tuner.h).
  StepExchange(const std::vector<std::size_t>& bucket_sizes, std::unique_ptr<Reduction> reduction,
               bool tune);

  absl::Status Enter(const membership::View& view, transport::Mesh* mesh) override;
  void Leave() override { mesh_ = nullptr; }

  absl::Status Begin(const Step& step) override;
  absl::StatusOr<std::int64_t> Prepare() override {
    return static_cast<std::int64_t>(step_.number);
  }
  // FAILED_PRECONDITION, from Finish, names the buckets that were never added.
  void Add(int group, int bucket) override;
  absl::StatusOr<Outcome> Finish(std::span<const double> statistics, int columns) override;
  void Cancel(const absl::Status& reason) override;
  void Settle(Fate fate) override { reduction_->Settle(fate); }
  std::span<float> residual() override { return reduction_->residual(); }
  void Adopted(bool from_checkpoint) override { reduction_->Adopted(from_checkpoint); }
  Volume volume() const override;
  std::vector<Path> paths() const override;
  void RecordTo(timeline::Recorder& recorder) override { recorder_ = &recorder; }
  ranges::Range<int> Groups(int rank, int size, int groups) const override {
    return reduction_->Groups(rank, size, groups);
  }

 private:
  absl::StatusOr<HostStep> Checked(const Step& step) const;
  absl::Status Reduce(ranges::Range<int> buckets);
  // The view's end, if it is the mesh that has failed.
  absl::Status Judged(const absl::Status& failed) const;
  absl::Status FinishStep(std::span<const double> statistics, int columns, Outcome& outcome);
  // The control word of a step, with how long this rank took for the one before where all ranks are
  // to know.
  std::vector<std::int64_t> Control(const Step& step) const;
  // Takes that off what has arrived.
  void Tune(Outcome& outcome);

  const std::unique_ptr<Reduction> reduction_;
  std::vector<Bucket> buckets_;
  std::size_t length_ = 0;  // of all buckets
  transport::Mesh* mesh_ = nullptr;
  HostStep step_;  // written by Begin only, while no other call may run
  std::optional<SideChannel> side_channel_;
  BucketSchedule schedule_;
  const bool tune_;
  BucketTuner tuner_;
  std::chrono::steady_clock::time_point begun_;  // the present step
  std::chrono::nanoseconds took_{0};             // the step before
  timeline::Recorder* recorder_ = nullptr;
  std::string_view transport_;  // of the present view, for the recorder

  sync::Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace starling::exchange

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"
#include "trainer/collectives/allreduce.h"
#include "trainer/collectives/encoded_allreduce.h"
#include "trainer/collectives/grouped_reduce.h"
#include "trainer/collectives/selector.h"
#include "trainer/compression/compressor.h"
#include "trainer/exchange/exchange.h"
#include "trainer/exchange/step_exchange.h"
#include "trainer/kernels/span_math.h"

namespace starling::exchange {
namespace {

// How long a rank waits for the others while all measure their links; normally the coordinator ends
// a view long before, when it finds a member silent.
constexpr absl::Duration kAgreeTimeout = absl::Minutes(1);
// How long a rank measures before steps go on, where links, or a machine without CPU, are slow.
constexpr absl::Duration kMeasuring = absl::Milliseconds(100);

bool Alone(const HostStep& step) { return step.mesh == nullptr || step.mesh->size() == 1; }

// What a rank sends of so many floats in a ring.
std::uint64_t RingBytes(const HostStep& step, const Bucket& bucket) {
  const auto ranks = static_cast<std::uint64_t>(step.mesh->size());
  return 2 * (ranks - 1) * bucket.range.size() * sizeof(float) / ranks;
}

// What the busiest rank sends of it.
std::uint64_t Sent(collectives::Algorithm algorithm, const HostStep& step, const Bucket& bucket) {
  const auto bytes = static_cast<double>(bucket.range.size() * sizeof(float));
  const double arrays = collectives::PriceOf(algorithm, step.mesh->size()).sent;
  return static_cast<std::uint64_t>(std::llround(arrays * bytes));
}

// Sums in place; rank i's share of the batch is group i.
class AllReduce final : public Reduction {
 public:
  // `largest`: bytes of the largest bucket.
  AllReduce(std::optional<collectives::Algorithm> algorithm, std::size_t largest)
      : algorithm_(algorithm), effort_{largest, kMeasuring} {}

  absl::Status Enter(transport::Mesh* mesh) override {
    if (mesh == nullptr) return absl::OkStatus();
    if (algorithm_) {
      selection_ = collectives::Always(*algorithm_);
      return absl::OkStatus();
    }
    constexpr transport::Tag kTag = {.step = 0, .channel = collectives::kSelectionChannel};
    ASSIGN_OR_RETURN(selection_,
                     collectives::AgreeOnSelection(
                         {*mesh, kTag, net::Deadline::After(kAgreeTimeout), workspace_}, effort_));
    return absl::OkStatus();
  }

  std::optional<Path> path() const override {
    return Path{.algorithm = collectives::AlgorithmsOf(selection_), .reason = Reason()};
  }

  std::string_view WayOf(const Bucket& bucket) const override {
    return collectives::NameOf(selection_.Of(bucket.range.size() * sizeof(float)));
  }

  absl::Status Reduce(const HostStep& step, transport::Tag tag, const Bucket& bucket) override {
    if (Alone(step)) return absl::OkStatus();
    const collectives::Algorithm algorithm = selection_.Of(bucket.range.size() * sizeof(float));
    sent_ += Sent(algorithm, step, bucket);
    return collectives::Allreduce(algorithm, {*step.mesh, tag, step.deadline, workspace_},
                                  bucket.range.Of(step.floats));
  }
  Volume volume() const override { return {sent_, sent_}; }

 private:
  std::string Reason() const {
    if (algorithm_) return "the job file says so";
    if (selection_.links == 0) return "all workers share memory";
    return absl::StrCat("fastest where ", collectives::MeasuredOf(selection_));
  }

  const std::optional<collectives::Algorithm> algorithm_;
  const collectives::Effort effort_;
  collectives::Selection selection_;  // of the present view
  std::uint64_t sent_ = 0;
  collectives::Workspace workspace_;
};

// A single worker's gradients are their own sum, and it must stay alone.
class OfOneWorker final : public Reduction {
 public:
  absl::Status Begin(const HostStep& step, ranges::Range<int>) override {
    if (Alone(step)) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        "the job's exchange is none, but its view has ", step.mesh->size(),
        " workers: set replicaSpecs.worker to one replica, or spec.exchange to allReduce"));
  }
  absl::Status Reduce(const HostStep&, transport::Tag, const Bucket&) override {
    return absl::OkStatus();
  }
};

// The same, encoded on the way. A rank that is alone encodes nothing, and delivers what it has
// kept.
class EncodedAllReduce final : public Reduction {
 public:
  EncodedAllReduce(const AllReduceOptions& options, std::size_t elements)
      : codec_(options.codec), compressor_(*codec_, elements, options.compressor) {}

  std::optional<Path> path() const override {
    return Path{.algorithm = std::string(way().name), .reason = std::string(way().reason)};
  }
  std::string_view WayOf(const Bucket&) const override { return way().name; }

  absl::Status Begin(const HostStep& step, ranges::Range<int>) override {
    compressor_.DiscardAll();
    compressor_.OnStep(static_cast<std::int64_t>(step.number));
    return absl::OkStatus();
  }

  absl::Status Reduce(const HostStep& step, transport::Tag tag, const Bucket& bucket) override {
    const std::size_t first = bucket.range.begin;
    if (Alone(step)) {
      compressor_.Release(kStep, {first}, bucket.range.Of(step.floats));
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(
        const std::size_t sent,
        collectives::EncodedAllreduce({*step.mesh, tag, step.deadline, workspace_}, compressor_,
                                      kStep, first, bucket.range.Of(step.floats)));
    volume_.sent += sent;
    volume_.dense += RingBytes(step, bucket);
    return absl::OkStatus();
  }

  void Settle(Fate fate) override {
    if (fate == Fate::kApplied) compressor_.Commit(kStep);
    if (fate == Fate::kDropped) compressor_.DiscardAll();
    if (fate == Fate::kMissed) compressor_.Clear();
  }
  std::span<float> residual() override { return compressor_.residual(); }
  void Adopted(bool from_checkpoint) override {
    from_checkpoint ? compressor_.Restore() : compressor_.Keep();
  }
  Volume volume() const override { return volume_; }

 private:
  static constexpr std::uint64_t kStep = 0;  // one at a time is pending

  struct Way {
    compression::Summing summing;
    std::string_view name, reason;
  };
  static constexpr Way kWays[] = {
      {compression::Summing::kByOwners, "ByOwners", "so that each sum is encoded once"},
      {compression::Summing::kByAll, "ToAll", "encodings of this codec are not encoded anew"},
      {compression::Summing::kInLevels, "InLevels", "with shared scales sums need no decoding"},
  };
  const Way& way() const { return *std::ranges::find(kWays, codec_->summing(), &Way::summing); }

  const std::shared_ptr<const compression::Codec> codec_;
  compression::Compressor compressor_;
  collectives::Workspace workspace_;
  Volume volume_;
};

// Keeps each group's gradient apart until the group-order sum. Alone, it adds them as they come.
class Reproducible final : public Reduction {
 public:
  explicit Reproducible(std::size_t buckets) : buckets_(buckets) {}

  ranges::Range<int> Groups(int rank, int size, int groups) const override {
    return ranges::PartOf(groups, rank, size);
  }

  std::optional<Path> path() const override {
    return Path{.algorithm = "ByOwners", .reason = "sums in the order of groups are reproducible"};
  }
  std::string_view WayOf(const Bucket&) const override { return "ByOwners"; }

  absl::Status Begin(const HostStep& step, ranges::Range<int> groups) override {
    groups_ = groups;
    added_.clear();
    if (step.floats.empty()) return absl::OkStatus();
    const auto needed = static_cast<std::size_t>(Alone(step) ? 1 : groups.size());
    if (gradients_.size() < needed) gradients_.resize(needed);
    for (std::size_t i = 0; i < needed; ++i) gradients_[i].resize(step.floats.size());
    added_.assign(buckets_, 0);
    return absl::OkStatus();
  }

  absl::Status Add(const HostStep& step, int group, const Bucket& bucket) override {
    const auto gradient = bucket.range.Of(std::span<const float>(step.floats));
    const int index = group - groups_.begin;
    if (!Alone(step)) {
      kernels::Copy(gradient, bucket.range.Of(std::span(gradients_[index])));
      return absl::OkStatus();
    }
    int& next = added_[bucket.index];
    if (index != next) {
      return absl::InvalidArgumentError(absl::StrCat("step ", step.number, ": group ", group,
                                                     " was added when group ", groups_.begin + next,
                                                     " was due; groups come in order"));
    }
    ++next;
    const auto sum = bucket.range.Of(std::span(gradients_[0]));
    if (index == 0) {
      kernels::Copy(gradient, sum);
    } else {
      kernels::Add(gradient, sum);
    }
    return absl::OkStatus();
  }

  absl::Status Reduce(const HostStep& step, transport::Tag tag, const Bucket& bucket) override {
    if (Alone(step)) {
      kernels::Copy(bucket.range.Of(std::span<const float>(gradients_[0])),
                    bucket.range.Of(step.floats));
      return absl::OkStatus();
    }
    std::vector<std::span<const float>> mine;
    mine.reserve(static_cast<std::size_t>(groups_.size()));
    for (int i = 0; i < groups_.size(); ++i) {
      mine.push_back(bucket.range.Of(std::span<const float>(gradients_[i])));
    }
    Count(step, bucket);
    return collectives::GroupedReduce({*step.mesh, tag, step.deadline, workspace_}, step.groups,
                                      mine, bucket.range.Of(step.floats));
  }
  Volume volume() const override { return volume_; }

 private:
  // Each group's share of the others' parts, and the sum of this rank's own to all others.
  void Count(const HostStep& step, const Bucket& bucket) {
    const auto ranks = static_cast<std::size_t>(step.mesh->size());
    const std::size_t length = bucket.range.size();
    const std::size_t own =
        ranges::PartOf(length, static_cast<std::size_t>(step.mesh->rank()), ranks).size();
    const auto groups = static_cast<std::size_t>(groups_.size());
    volume_.sent += sizeof(float) * (groups * (length - own) + (ranks - 1) * own);
    volume_.dense += RingBytes(step, bucket);
  }

  const std::size_t buckets_;
  Volume volume_;
  ranges::Range<int> groups_;
  std::vector<std::vector<float>> gradients_;  // by group of this rank
  std::vector<int> added_;                     // alone: groups so far, by bucket
  collectives::Workspace workspace_;
};

}  // namespace

absl::Status ViewEnded(const absl::Status& status) {
  return transport::WithUnreachableRanks(absl::UnavailableError(status.message()),
                                         transport::UnreachableRanks(status));
}

std::string TransportTo(const transport::Mesh& mesh, std::span<const int> ranks) {
  const std::string network =
      mesh.shaping().enabled() ? absl::StrCat(", ", transport::TextOf(mesh.shaping())) : "";
  int near = 0, others = 0, encrypted = 0, datagrams = 0;
  for (const int rank : ranks) {
    if (rank == mesh.rank()) continue;
    ++others;
    if (mesh.SharesMemory(rank)) ++near;
    if (mesh.Encrypts(rank)) ++encrypted;
    if (mesh.SendsDatagrams(rank)) ++datagrams;
  }
  if (near == others) return absl::StrCat("shared memory", network);
  const std::string far =
      absl::StrCat(datagrams > 0 ? "UDP" : "TCP", encrypted == others - near ? " with TLS" : "");
  if (near == 0) return absl::StrCat(far, network);
  return absl::StrCat("shared memory to ", near, " of ", others, " peers, ", far, " to the others",
                      network);
}

std::unique_ptr<Exchange> NewAllReduceExchange(const std::vector<std::size_t>& bucket_sizes,
                                               const AllReduceOptions& options) {
  const auto elements = std::accumulate(bucket_sizes.begin(), bucket_sizes.end(), std::size_t{0});
  if (options.codec == nullptr || options.codec->lossless()) {
    std::size_t largest = bucket_sizes.empty() ? 0 : std::ranges::max(bucket_sizes);
    if (options.tune_buckets) largest = elements;
    return std::make_unique<StepExchange>(
        bucket_sizes, std::make_unique<AllReduce>(options.algorithm, largest * sizeof(float)),
        options.tune_buckets);
  }
  return std::make_unique<StepExchange>(
      bucket_sizes, std::make_unique<EncodedAllReduce>(options, elements), options.tune_buckets);
}

std::unique_ptr<Exchange> NewReproducibleExchange(const std::vector<std::size_t>& bucket_sizes,
                                                  bool tune_buckets) {
  return std::make_unique<StepExchange>(
      bucket_sizes, std::make_unique<Reproducible>(bucket_sizes.size()), tune_buckets);
}

std::unique_ptr<Exchange> NewNoExchange(const std::vector<std::size_t>& bucket_sizes) {
  return std::make_unique<StepExchange>(bucket_sizes, std::make_unique<OfOneWorker>(),
                                        /*tune=*/false);
}

}  // namespace starling::exchange

// SPDX-License-Identifier: Apache-2.0
// What a job computes: a model or table, the samples that it learns from, and the metrics that say
// how well it does.
//
// The worker's loops, the exchanges, checkpoints and results know a workload only by this
// interface, so that each of them works for every workload. Parameters and gradients are flat
// buffers of floats: the loops bring the parameters before Compute is called and carry the
// gradients away as Compute makes them. To add a workload: a source file with a class of this kind,
// a line in the table of workloads.cc, and a line in workload_contract_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/engine/engine.h"

namespace starling::workload {

// A metric's sum over some samples, and what it is divided by: mostly the number of samples.
struct Sum {
  double sum = 0;
  double count = 0;
  bool operator==(const Sum&) const = default;
};
// One for each of Declaration::metrics, in their order. Sums of groups and of workers are added.
using Sums = std::vector<Sum>;

inline constexpr std::size_t kMostMetrics = 8;
// The metrics' values in the order of their names; those without a name are 0.
using Values = std::array<double, kMostMetrics>;

// `from` has the size of `into`, or `into` is empty.
void Add(const Sums& from, Sums& into);
// What went wrong in a workload would in every view and for every worker, so it is never called
// UNAVAILABLE or ABORTED, by which exchanges mean less: `status` as the job's failure.
absl::Status OfTheJob(const absl::Status& status);

// What a workload says of itself. It stays the same for the workload's whole life.
struct Declaration {
  // Names of the metrics, at most kMostMetrics. The first is "loss": what training lowers, and what
  // the best validation is chosen by.
  std::vector<std::string> metrics;
  // The model: names and shapes of the tensors in the flat buffers, in order, without gaps.
  std::vector<engine::Tensor> tensors;
  // The stretches of the gradients that become ready one after another; together all of them.
  std::vector<engine::Bucket> buckets;
  std::int64_t samples = 0;             // of the training set, numbered from 0
  std::int64_t validation_samples = 0;  // of the validation set; 0: there is none
  // Equal at two workers if they have the same samples.
  std::string data_digest;
  // What results depend on beside the inputs: workers that must agree bit by bit compare it.
  std::string numeric_identity;
  // What Compute leaves in gradients() is what it has changed the parameters by, to be added as it
  // is, and not the gradient of a sum.
  bool changes = false;
  // Samples are read when they are wanted: Expect makes use of knowing them before.
  bool reads_ahead = false;
  // What whoever uses the model needs beside its tensors. It depends on the job alone, so that
  // equal parameters give equal model files.
  std::map<std::string, std::string> model_metadata;
  // Of `metrics`: those whose value is e to the power of the mean, as a loss's perplexity is.
  std::vector<std::string> exponentials;
  // Of `metrics`: those whose value is the root of the mean.
  std::vector<std::string> roots = {};
};

// Each metric's sum divided by its count; 0 where nothing was counted.
Values MeansOf(const Sums& sums, const Declaration& declared);

// Whom a workload computes for.
struct Client {
  // The samples have been read; what follows is arithmetic. The loops measure the two apart.
  std::function<void()> loaded = [] {};
  // Gradients of bucket i are complete and may leave while the next ones are made. Called for
  // i = 0, 1, 2 and so on: for every bucket once, also when there is no sample.
  std::function<void(std::int64_t bucket)> push = [](std::int64_t) {};
  // The learning rate of the update that comes next, for a workload that changes its parameters.
  double rate = 0;
  // Which pass over the training set the samples are of, from 1: what is drawn for a sample depends
  // on it.
  std::int64_t epoch = 1;
  // What a network's loss is multiplied by while it is computed in narrow numbers
  // (Engine::ScaleLoss); gradients come as if it were not.
  double loss_scale = 1;
};

// For a model that is a table of rows of which each sample uses few. Parameter servers keep rows
// only from their first push on, all of them zero before; a worker pulls and pushes the rows of its
// samples alone. Row r is the r-th float of the flat buffers.
class SparseTable {
 public:
  virtual ~SparseTable() = default;

  // The rows that these samples of the training set use, ascending, each once. Compute reads no
  // others and makes gradients of no others: what it leaves elsewhere in the gradients means
  // nothing.
  virtual std::vector<std::uint64_t> Rows(std::span<const std::int64_t> samples) const = 0;
  // Those of the whole validation set, and of both sets. All other rows are zero for ever.
  virtual std::vector<std::uint64_t> ValidationRows() const = 0;
  virtual std::span<const std::uint64_t> AllRows() const = 0;

  // Plain descent: for one sample after another, its rows go down by `rate` times the gradient of
  // its own loss, by kernels::AtomicAdd. The sums are of before each step. Several threads may be
  // in it with other samples; nobody may call anything else of the workload meanwhile.
  virtual Sums Descend(std::span<const std::int64_t> samples, double rate) = 0;
};

// Confined to one thread, but for SparseTable::Descend. Two workloads of one job hold equal
// parameters at first, whatever the machine.
class Workload {
 public:
  explicit Workload(Declaration declaration);
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  const Declaration& declaration() const { return declaration_; }

  virtual std::span<float> parameters() = 0;
  // Of the last Compute: the gradient of the summed loss. Others may use the memory between two
  // calls: an exchange sums in place.
  virtual std::span<float> gradients() = 0;
  // From now on they lie in `memory`, which has as many floats and outlives this. False: they stay
  // where they are.
  virtual bool PlaceGradients(std::span<float> /*memory*/) { return false; }

  // Gradients and metrics of these samples of the training set, perhaps none. CANCELLED: the view
  // has ended, of which this workload is told by itself.
  virtual absl::StatusOr<Sums> Compute(std::span<const std::int64_t> samples,
                                       const Client& client) = 0;
  // The metrics of the samples [begin, end) of the validation set.
  virtual absl::StatusOr<Sums> Evaluate(std::int64_t begin, std::int64_t end) = 0;

  // What is likely to be computed after the next Compute calls: these samples, in pass `epoch`.
  // Only where reads_ahead is declared; it returns at once, and changes no result.
  virtual void Expect(std::span<const std::int64_t> /*samples*/, std::int64_t /*epoch*/) {}

  // From the next Compute on the factors of gradients are kept where there are any.
  virtual void KeepFactors() {}
  // Of tensor `index`, from its bucket on and until the next Compute. None where its gradient is no
  // product of two matrices (convolutions, biases), or where factors are not kept.
  virtual std::optional<engine::Factors> FactorsOf(std::size_t /*index*/) const {
    return std::nullopt;
  }

  // Null: every sample uses all parameters.
  virtual SparseTable* sparse() { return nullptr; }

 private:
  const Declaration declaration_;
};

}  // namespace starling::workload

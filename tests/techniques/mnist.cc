// SPDX-License-Identifier: Apache-2.0
// LeNet-5 on MNIST: gradients of the workers' own engine, opened as they open it.
#include <algorithm>
#include <string>
#include <utility>

#include "common/status/check.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "tests/techniques/problem.h"
#include "trainer/data/load_datasets.h"
#include "trainer/kernels/span_math.h"
#include "trainer/workload/classification.h"

namespace starling::techniques {
namespace {

constexpr std::int64_t kTrained = 8000;     // of the 10,000 images; the others judge
constexpr std::size_t kJudgedAtOnce = 500;  // so that activations stay in the caches

v1alpha1::TrainingJobSpec SpecOf(std::uint64_t seed) {
  v1alpha1::TrainingJobSpec spec;
  spec.set_seed(static_cast<std::int64_t>(seed));
  spec.mutable_workload()->mutable_classification()->mutable_model()->mutable_lenet5();
  const auto fill = [](v1alpha1::DataSource& source) -> v1alpha1::IdxSource& {
    const std::string folder = STARLING_SOURCE_DIR "/examples/data/";
    v1alpha1::IdxSource& idx = *source.mutable_idx();
    idx.set_images_uri(folder + "mnist10k-images-idx3-ubyte.gz");
    idx.set_labels_uri(folder + "mnist10k-labels-idx1-ubyte.gz");
    return idx;
  };
  fill(*spec.mutable_dataset()->mutable_train()).set_count(kTrained);
  fill(*spec.mutable_dataset()->mutable_validation()).set_offset(kTrained);
  return spec;
}

using Round = std::function<void(std::span<float>)>;

absl::StatusOr<std::unique_ptr<engine::Engine>> OpenEngine(engine::OpenEngineFunction open,
                                                           const data::Dataset& train,
                                                           std::uint64_t seed, Round round = {}) {
  ASSIGN_OR_RETURN(engine::EngineConfig config, workload::EngineConfigOf(SpecOf(seed), train));
  config.seed = seed;
  config.round = std::move(round);
  engine::OpenedEngine opened;
  open(config, &opened);
  return std::move(opened.engine);
}

class MnistLeNet5 final : public Problem {
 public:
  MnistLeNet5(engine::OpenEngineFunction open, data::Datasets sets,
              std::unique_ptr<engine::Engine> engine)
      : open_(open), sets_(std::move(sets)), engine_(std::move(engine)) {}

  std::size_t parameters() const override {
    const sync::MutexLock lock(mutex_);
    return engine_->parameters().size();
  }
  std::vector<std::vector<std::int64_t>> shapes() const override {
    const sync::MutexLock lock(mutex_);
    std::vector<std::vector<std::int64_t>> shapes;
    for (const engine::Tensor& tensor : engine_->tensors()) shapes.push_back(tensor.shape);
    return shapes;
  }
  std::int64_t samples() const override { return sets_.train.size(); }
  std::int64_t Label(std::int64_t sample) const override {
    return sets_.train.labels[static_cast<std::size_t>(sample)];
  }
  std::vector<float> First(std::uint64_t seed) const override {
    const auto engine = OpenEngine(open_, sets_.train, seed);
    STARLING_CHECK(engine.ok(), engine.status().ToString().c_str());
    const std::span<const float> drawn = (*engine)->parameters();
    return {drawn.begin(), drawn.end()};
  }

  void Gradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                std::span<float> gradient) const override {
    const sync::MutexLock lock(mutex_);
    GradientBy(*engine_, parameters, ids, gradient);
  }
  void NarrowGradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                      const Narrow& narrow, std::span<float> gradient) const override {
    const sync::MutexLock lock(mutex_);
    round_ = narrow.round;
    if (narrow_engine_ == nullptr) {
      auto engine =
          OpenEngine(open_, sets_.train, 0, [this](std::span<float> values) { RoundNow(values); });
      STARLING_CHECK(engine.ok(), engine.status().ToString().c_str());
      narrow_engine_ = *std::move(engine);
    }
    narrow_engine_->ScaleLoss(static_cast<float>(narrow.loss_scale));
    GradientBy(*narrow_engine_, parameters, ids, gradient);
  }
  double Loss(std::span<const float> parameters) const override {
    return Judge(parameters, sets_.train, -1).loss;
  }
  double Accuracy(std::span<const float> parameters) const override {
    return Judge(parameters, *sets_.validation, -1).right;
  }
  double Recall(std::span<const float> parameters, std::int64_t label) const override {
    return Judge(parameters, *sets_.validation, label).right;
  }

 private:
  struct Samples {
    Samples(const data::Dataset& set, std::span<const std::int64_t> ids)
        : features(ids.size() * static_cast<std::size_t>(set.SampleSize())), labels(ids.size()) {
      data::Gather(set, ids, features, labels);
    }
    std::vector<float> features;
    std::vector<std::int64_t> labels;
  };
  struct Judgement {
    double loss = 0, right = 0;  // of one sample, on average
  };

  void Use(std::span<const float> parameters) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::ranges::copy(parameters, engine_->parameters().begin());
  }
  void GradientBy(engine::Engine& engine, std::span<const float> parameters,
                  std::span<const std::int64_t> ids, std::span<float> gradient) const {
    std::ranges::copy(parameters, engine.parameters().begin());
    const Samples samples(sets_.train, ids);
    const auto sums = engine.ComputeGradients(samples.features, samples.labels, {});
    STARLING_CHECK(sums.ok(), sums.status().ToString().c_str());
    std::ranges::copy(engine.gradients(), gradient.begin());
    kernels::Scale(1.0F / static_cast<float>(ids.size()), gradient);
  }
  // Called within NarrowGradient, which holds the mutex.
  void RoundNow(std::span<float> values) const ABSL_NO_THREAD_SAFETY_ANALYSIS { round_(values); }
  // Of the samples with this label; -1: of all.
  Judgement Judge(std::span<const float> parameters, const data::Dataset& set,
                  std::int64_t label) const {
    std::vector<std::int64_t> ids;
    for (std::int64_t id = 0; id < set.size(); ++id) {
      if (label < 0 || set.labels[static_cast<std::size_t>(id)] == label) ids.push_back(id);
    }
    const sync::MutexLock lock(mutex_);
    Use(parameters);
    Judgement judgement;
    for (std::size_t begin = 0; begin < ids.size(); begin += kJudgedAtOnce) {
      const std::size_t count = std::min(kJudgedAtOnce, ids.size() - begin);
      const Samples samples(set, std::span(ids).subspan(begin, count));
      const auto sums = engine_->Evaluate(samples.features, samples.labels);
      STARLING_CHECK(sums.ok(), sums.status().ToString().c_str());
      judgement.loss += sums->loss / static_cast<double>(ids.size());
      judgement.right += static_cast<double>(sums->correct) / static_cast<double>(ids.size());
    }
    return judgement;
  }

  const engine::OpenEngineFunction open_;
  const data::Datasets sets_;
  mutable sync::Mutex mutex_;
  const std::unique_ptr<engine::Engine> engine_ ABSL_PT_GUARDED_BY(mutex_);
  mutable Round round_ ABSL_GUARDED_BY(mutex_);
  // As the other, in the numbers that were last asked for.
  mutable std::unique_ptr<engine::Engine> narrow_engine_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Problem>> Mnist() {
  ASSIGN_OR_RETURN(const engine::OpenEngineFunction open, workload::LoadEngineLibrary());
  ASSIGN_OR_RETURN(data::Datasets sets, data::LoadDatasets(SpecOf(0)));
  ASSIGN_OR_RETURN(std::unique_ptr<engine::Engine> engine, OpenEngine(open, sets.train, 0));
  return std::make_shared<MnistLeNet5>(open, std::move(sets), std::move(engine));
}

}  // namespace starling::techniques

// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/codec_lesson.h"

#include <random>
#include <utility>
#include <vector>

#include "common/status/check.h"
#include "trainer/collectives/encoded_allreduce.h"
#include "trainer/data/batches.h"
#include "trainer/kernels/span_math.h"
#include "trainer/testing/transports.h"

namespace starling::techniques {
namespace {

using compression::Codec;
using Floats = std::vector<float>;

Floats FirstOf(const Problem& problem, std::uint64_t seed) {
  Floats first = problem.First(seed);
  if (!first.empty()) return first;
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-0.1F, 0.1F);
  first.resize(problem.parameters());
  for (float& value : first) value = uniform(random);
  return first;
}

class Worker {
 public:
  Worker(const Lesson& lesson, const Way& way, const Codec& codec, std::uint64_t seed, int rank)
      : problem_(*lesson.problem),
        way_(way),
        rate_(static_cast<float>(lesson.rate * way.rate)),
        rank_(rank),
        batches_(problem_.samples(), kCodecBatch, seed),
        weights_(FirstOf(problem_, seed)),
        velocity_(weights_.size()),
        compressor_(codec, weights_.size(), way.options) {}

  void Step(std::int64_t update, transport::Mesh& mesh) {
    Floats change = way_.local == 1 ? GradientAt(weights_, update) : LocalChange(update);
    compressor_.OnStep(update + 1);
    const collectives::Communicator all{
        mesh,
        {static_cast<std::uint64_t>(update) + 1, collectives::kFirstBucketChannel},
        transport::testing::Soon(),
        workspace_};
    const auto sent = collectives::EncodedAllreduce(all, compressor_, 0, 0, change);
    STARLING_CHECK(sent.ok(), sent.status().ToString().c_str());
    compressor_.Commit(0);
    sent_ += static_cast<double>(*sent);
    kernels::Scale(1.0F / kCodecWorkers, change);
    if (way_.local > 1) return kernels::Add(change, weights_);
    kernels::Scale(static_cast<float>(way_.momentum), velocity_);
    kernels::Add(change, velocity_);
    kernels::Axpy(-rate_, velocity_, weights_);
  }
  const Floats& weights() const { return weights_; }
  double sent() const { return sent_; }

 private:
  Floats GradientAt(const Floats& weights, std::int64_t step) {
    Floats gradient(weights.size());
    problem_.Gradient(weights, batches_.SampleIds(step * kCodecWorkers + rank_ + 1), gradient);
    return gradient;
  }
  Floats LocalChange(std::int64_t update) {
    Floats weights = weights_;
    for (std::int64_t i = 0; i < way_.local; ++i) {
      kernels::Axpy(-rate_, GradientAt(weights, update * way_.local + i), weights);
    }
    kernels::Subtract(weights_, weights);
    return weights;
  }

  const Problem& problem_;
  const Way& way_;
  const float rate_;
  const int rank_;
  const data::Batches batches_;
  Floats weights_, velocity_;
  compression::Compressor compressor_;
  collectives::Workspace workspace_;
  double sent_ = 0;
};

}  // namespace

std::unique_ptr<Codec> CodecOf(const v1alpha1::Codec& spec) {
  auto codec = compression::MakeCodec(spec);
  STARLING_CHECK(codec.ok(), codec.status().ToString().c_str());
  return *std::move(codec);
}

// The digits with a hidden layer that is worth encoding, or MNIST.
Lesson CodecLesson(const Setting& setting) {
  Lesson lesson = LessonOf(setting);
  if (lesson.name == kDigits) lesson.problem = Digits(128);
  return lesson;
}

Learned Learn(const Lesson& lesson, std::uint64_t seed, Way way) {
  const std::vector<std::vector<std::int64_t>> shapes = lesson.problem->shapes();
  way.options.layout = compression::Layout(shapes);
  way.options.seed = seed;
  const std::unique_ptr<Codec> codec = CodecOf(way.codec);
  transport::testing::Members members(transport::testing::Kind::kInproc, kCodecWorkers);
  const auto meshes = members.OpenAll(1);
  const std::int64_t steps = lesson.samples / (kCodecWorkers * kCodecBatch);
  Learned learned;
  transport::testing::OnEachRank(kCodecWorkers, [&](int rank) {
    Worker worker(lesson, way, *codec, seed, rank);
    for (std::int64_t i = 0; i < steps / way.local; ++i) worker.Step(i, *meshes[rank]);
    if (rank > 0) return;
    learned.accuracy = 100 * lesson.problem->Accuracy(worker.weights());
    learned.loss = lesson.problem->Loss(worker.weights());
    learned.sent = worker.sent();
  });
  learned.dense = static_cast<double>(steps) * 2 * (kCodecWorkers - 1) / kCodecWorkers *
                  sizeof(float) * static_cast<double>(lesson.problem->parameters());
  return learned;
}

}  // namespace starling::techniques

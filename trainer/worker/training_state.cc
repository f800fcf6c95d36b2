// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/training_state.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/ranges/ranges.h"
#include "trainer/kernels/span_math.h"

namespace starling::worker {
namespace {

// One scalar a field: a checkpoint shows them by name.
void AddCourse(Course& course, Names metrics, checkpoint::StateParts& parts) {
  parts.AddScalar("course/step", course.step);
  parts.AddScalar("course/validatedStep", course.validated_step);
  parts.AddScalar("course/bestStep", course.best_step);
  parts.AddScalar("course/withoutGain", course.without_gain);
  for (size_t i = 0; i < metrics.size(); ++i) {
    parts.AddScalar(absl::StrCat("course/training/", metrics[i]), course.training[i]);
    parts.AddScalar(absl::StrCat("course/validation/", metrics[i]), course.validation[i]);
    parts.AddScalar(absl::StrCat("course/best/", metrics[i]), course.best[i]);
  }
}

// Of a flat buffer.
template <typename Float>
std::span<Float> PartOf(const engine::Tensor& tensor, std::span<Float> flat) {
  return flat.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size));
}

void AddTensor(const std::string& prefix, const engine::Tensor& tensor, std::span<float> values,
               checkpoint::StateParts& parts) {
  parts.Add(prefix + tensor.name, tensor.shape, values);
}

// What is there of the mean is `gradient`, one over the samples of the batch.
void Follow(float momentum, std::span<const float> gradient, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) values[i] += momentum * (gradient[i] - values[i]);
}

// What an optimizer moves.
std::vector<numerics::WeightTensor> WeightsOf(std::span<const engine::Tensor> tensors) {
  std::vector<numerics::WeightTensor> weights;
  for (const engine::Tensor& tensor : tensors) {
    if (tensor.momentum != 0) continue;
    weights.push_back({tensor.name, tensor.shape, tensor.offset, tensor.size});
  }
  return weights;
}

}  // namespace

TrainingState::TrainingState(workload::Workload& workload, const optimizer::Optimizer& rule,
                             bool keep_best, const ServedRanges& served,
                             const NumericsOptions& options)
    : workload_(workload),
      rule_(rule),
      keep_best_(keep_best),
      best_(keep_best ? workload.parameters().size() : 0),
      numerics_(options.spec, options.seed, WeightsOf(tensors())) {
  AddCourse(course_, metrics(), parts_);
  numerics_.Register(parts_);
  std::size_t weights = 0;
  for (const engine::Tensor& tensor : tensors()) {
    const auto holds = [&](const parameter_server::RowRange& range) {
      return range.Holds(static_cast<std::uint64_t>(tensor.offset));
    };
    if (std::ranges::any_of(served, holds)) continue;
    held_.push_back({tensor, {}, 0});
    if (tensor.momentum != 0) continue;
    held_.back().weights = weights++;
    numerics_.Begin(held_.back().weights, PartOf(tensor, workload_.parameters()));
    held_.back().vectors = optimizer::NewState(rule, static_cast<size_t>(tensor.size));
  }
  for (Held& held : held_) {
    AddTensor("model/", held.tensor, PartOf(held.tensor, workload_.parameters()), parts_);
    for (optimizer::StateVector& vector : held.vectors) {
      AddTensor(absl::StrCat("optimizer/", vector.name, "/"), held.tensor, vector.values, parts_);
    }
  }
  if (!keep_best_) return;
  for (const engine::Tensor& tensor : tensors()) {
    AddTensor("best/", tensor, PartOf(tensor, std::span(best_)), parts_);
  }
}

std::span<const float> TrainingState::best_parameters() const {
  if (!keep_best_ || course_.best_step == 0) return workload_.parameters();
  return best_;
}

double TrainingState::Clipped(std::span<const float> gradient, double scale, double most) const {
  constexpr double kAgainstZero = 1e-6;  // as PyTorch has it
  double squares = 0;
  for (const Held& held : held_) {
    if (held.tensor.momentum != 0) continue;
    squares += kernels::SumOfSquares(PartOf(held.tensor, gradient));
  }
  const double norm = std::sqrt(squares) * scale;
  return std::min(1.0, most / (norm + kAgainstZero));
}

void TrainingState::Apply(double learning_rate, int64_t batch, const Values& means,
                          std::span<float> gradient, double clip_norm) {
  const float scale = 1.0F / static_cast<float>(batch);
  const float clipped =
      clip_norm == 0 ? scale : scale * static_cast<float>(Clipped(gradient, scale, clip_norm));
  ++course_.step;
  course_.training = means;
  optimizer::Update update{.learning_rate = learning_rate,
                           .number = course_.step - numerics_.skipped()};
  for (Held& held : held_) {
    const std::span<float> of_tensor = PartOf(held.tensor, gradient);
    const std::span<float> weights = PartOf(held.tensor, workload_.parameters());
    if (held.tensor.momentum != 0) {
      kernels::Scale(scale, of_tensor);
      Follow(held.tensor.momentum, of_tensor, weights);
      continue;
    }
    const numerics::WeightUpdate of_weights{
        .tensor = held.weights, .step = course_.step, .samples = batch};
    // Where nobody needs the whole tensor, what is scaled is still in the core's cache when the
    // optimizer reads it.
    constexpr std::size_t kPiece = 16 * 1024;
    const bool by_pieces = rule_.elementwise() && !numerics_.has_rules();
    update.whole_matrix = !by_pieces && held.tensor.shape.size() > 1;
    const ranges::Range<std::size_t> all{0, weights.size()};
    const std::size_t most = by_pieces ? kPiece : std::max<std::size_t>(1, all.size());
    for (std::size_t i = 0; i < ranges::PiecesOf(all, most); ++i) {
      const ranges::Range<std::size_t> piece = ranges::PieceOf(all, i, most);
      const std::span<float> of_piece = piece.Of(of_tensor);
      const std::span<float> weights_of_piece = piece.Of(weights);
      kernels::Scale(clipped, of_piece);
      numerics_.BeforeUpdate(of_weights, of_piece);
      optimizer::Apply(rule_, update, weights_of_piece, of_piece, held.vectors, piece.begin);
      numerics_.AfterUpdate(of_weights, weights_of_piece);
    }
  }
  numerics_.Applied();
}

void TrainingState::Skip(const Values& means) {
  ++course_.step;
  if (std::isfinite(means[0])) course_.training = means;
  numerics_.Skipped();
}

void TrainingState::TakeValidation(const Validated& validated) {
  course_ = validated.course;
  if (validated.best && keep_best_) {
    std::ranges::copy(workload_.parameters(), best_.begin());
  }
}

std::vector<checkpoint::TensorView> TrainingState::ModelView(bool best) const {
  const std::span<const float> flat = best ? best_parameters() : parameters();
  std::vector<checkpoint::TensorView> views;
  for (const engine::Tensor& tensor : tensors()) {
    views.push_back(checkpoint::MakeView(tensor.name, tensor.shape, PartOf(tensor, flat)));
  }
  return views;
}

}  // namespace starling::worker

// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/training_state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/check.h"
#include "common/status/macros.h"

namespace starling::worker {
namespace {

std::span<std::byte> BytesOf(std::span<float> floats) { return std::as_writable_bytes(floats); }

std::vector<std::span<std::byte>> SegmentsOf(Course& course, std::span<float> parameters,
                                             std::vector<optimizer::StateSlot>& slots,
                                             std::span<float> best) {
  static_assert(sizeof(Course) == 9 * 8);
  std::vector<std::span<std::byte>> segments = {std::as_writable_bytes(std::span(&course, 1)),
                                                BytesOf(parameters)};
  for (optimizer::StateSlot& slot : slots) segments.push_back(BytesOf(slot.values));
  if (!best.empty()) segments.push_back(BytesOf(best));
  return segments;
}

// The course by name. Doubles are written so that they are read back bit by bit.
template <typename OnInteger, typename OnDouble>
void VisitCourse(Course& course, const OnInteger& integer, const OnDouble& number) {
  integer("step", course.step);
  number("loss", course.loss);
  integer("validatedStep", course.validated_step);
  number("validationLoss", course.validation_loss);
  number("validationAccuracy", course.validation_accuracy);
  number("bestLoss", course.best_loss);
  number("bestAccuracy", course.best_accuracy);
  integer("bestStep", course.best_step);
  integer("withoutGain", course.without_gain);
}

}  // namespace

std::vector<std::span<std::byte>> Staging::Segments() {
  return SegmentsOf(course, parameters, slots, best);
}

bytes::Digest DigestOf(std::span<const std::span<std::byte>> segments) {
  bytes::Sha256 digest;
  for (std::span<std::byte> segment : segments) digest.Update(segment);
  return digest.Finish();
}

TrainingState::TrainingState(engine::Engine& engine, const optimizer::Optimizer& rule,
                             bool keep_best)
    : engine_(engine),
      rule_(rule),
      keep_best_(keep_best),
      slots_(optimizer::NewState(rule, engine.parameters().size())),
      best_(keep_best ? engine.parameters().size() : 0) {}

std::span<const float> TrainingState::best_parameters() const {
  if (!keep_best_ || course_.best_step == 0) return engine_.parameters();
  return best_;
}

void TrainingState::Apply(double learning_rate, int64_t batch, double mean_loss,
                          std::span<float> gradient) {
  const float scale = 1.0F / static_cast<float>(batch);
  for (float& element : gradient) element *= scale;
  ++course_.step;
  course_.loss = mean_loss;
  optimizer::Apply(rule_, {.learning_rate = learning_rate, .number = course_.step},
                   engine_.parameters(), gradient, slots_);
}

void TrainingState::TakeValidation(const Validated& validated) {
  course_ = validated.course;
  if (validated.best && keep_best_) {
    std::ranges::copy(engine_.parameters(), best_.begin());
  }
}

std::vector<std::span<std::byte>> TrainingState::Segments() {
  return SegmentsOf(course_, engine_.parameters(), slots_, best_);
}

Staging TrainingState::NewStaging() const {
  return {.course = {},
          .parameters = std::vector<float>(engine_.parameters().size()),
          .slots = optimizer::NewState(rule_, engine_.parameters().size()),
          .best = std::vector<float>(best_.size())};
}

void TrainingState::Adopt(Staging staging) {
  STARLING_CHECK(staging.parameters.size() == engine_.parameters().size(),
                 "a staged state has the size of the model");
  course_ = staging.course;
  std::ranges::copy(staging.parameters, engine_.parameters().begin());
  slots_ = std::move(staging.slots);
  best_ = std::move(staging.best);
}

void TrainingState::AddViews(const std::string& prefix, std::span<const float> flat,
                             std::vector<checkpoint::TensorView>& views) const {
  for (const engine::Tensor& tensor : engine_.tensors()) {
    views.push_back(checkpoint::MakeView(
        prefix + tensor.name, tensor.shape,
        flat.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size))));
  }
}

checkpoint::State TrainingState::CheckpointView(const checkpoint::StateId& id) const {
  checkpoint::State state{.id = id, .tensors = {}, .counters = {}, .attributes = {}};
  AddViews("model/", engine_.parameters(), state.tensors);
  for (const optimizer::StateSlot& slot : slots_) {
    AddViews(absl::StrCat("optimizer/", slot.name, "/"), slot.values, state.tensors);
  }
  if (keep_best_) AddViews("best/", best_, state.tensors);
  Course course = course_;
  VisitCourse(
      course, [&](const char* name, int64_t& value) { state.counters[name] = value; },
      [&](const char* name, double& value) {
        state.attributes[name] = absl::StrFormat("%.17g", value);
      });
  return state;
}

absl::Status TrainingState::ReadViews(const checkpoint::LoadedCheckpoint& checkpoint,
                                      const std::string& prefix, std::span<float> flat) const {
  for (const engine::Tensor& tensor : engine_.tensors()) {
    const checkpoint::TensorView* view = checkpoint.Find(prefix + tensor.name);
    if (view == nullptr || view->shape != tensor.shape ||
        view->Floats().size() != static_cast<size_t>(tensor.size)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "checkpoint ", checkpoint::NameOf(checkpoint.state().id), ": tensor ", prefix,
          tensor.name, view == nullptr ? " is missing" : " has another shape",
          ": it belongs to another model or optimizer than the job's; delete the job's checkpoints "
          "or restore the job's spec"));
    }
    std::ranges::copy(view->Floats(), flat.begin() + tensor.offset);
  }
  return absl::OkStatus();
}

absl::StatusOr<Staging> TrainingState::Read(const checkpoint::LoadedCheckpoint& checkpoint) const {
  Staging staging = NewStaging();
  RETURN_IF_ERROR(ReadViews(checkpoint, "model/", staging.parameters));
  for (optimizer::StateSlot& slot : staging.slots) {
    RETURN_IF_ERROR(ReadViews(checkpoint, absl::StrCat("optimizer/", slot.name, "/"), slot.values));
  }
  if (keep_best_) RETURN_IF_ERROR(ReadViews(checkpoint, "best/", staging.best));
  const checkpoint::State& state = checkpoint.state();
  std::string missing;
  VisitCourse(
      staging.course,
      [&](const char* name, int64_t& value) {
        const auto found = state.counters.find(name);
        if (found == state.counters.end()) return void(missing = name);
        value = found->second;
      },
      [&](const char* name, double& value) {
        const auto found = state.attributes.find(name);
        if (found == state.attributes.end() || !absl::SimpleAtod(found->second, &value)) {
          missing = name;
        }
      });
  if (!missing.empty()) {
    return absl::DataLossError(
        absl::StrCat("checkpoint ", checkpoint::NameOf(state.id), ": ", missing, " is missing"));
  }
  return staging;
}

std::vector<checkpoint::TensorView> TrainingState::ModelView(bool best) const {
  std::vector<checkpoint::TensorView> views;
  AddViews("", best ? best_parameters() : parameters(), views);
  return views;
}

}  // namespace starling::worker

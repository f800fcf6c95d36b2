// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/training_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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

}  // namespace

TrainingState::TrainingState(workload::Workload& workload, const optimizer::Optimizer& rule,
                             bool keep_best)
    : workload_(workload),
      rule_(rule),
      keep_best_(keep_best),
      slots_(optimizer::NewState(rule, workload.parameters().size())),
      best_(keep_best ? workload.parameters().size() : 0) {
  AddCourse(course_, metrics(), parts_);
  AddParameters("model/", workload_.parameters());
  for (optimizer::StateSlot& slot : slots_) {
    AddParameters(absl::StrCat("optimizer/", slot.name, "/"), slot.values);
  }
  if (keep_best_) AddParameters("best/", best_);
}

void TrainingState::AddParameters(const std::string& prefix, std::span<float> flat) {
  for (const engine::Tensor& tensor : tensors()) {
    parts_.Add(prefix + tensor.name, tensor.shape,
               flat.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size)));
  }
}

std::span<const float> TrainingState::best_parameters() const {
  if (!keep_best_ || course_.best_step == 0) return workload_.parameters();
  return best_;
}

void TrainingState::Apply(double learning_rate, int64_t batch, const Values& means,
                          std::span<float> gradient) {
  const float scale = 1.0F / static_cast<float>(batch);
  for (float& element : gradient) element *= scale;
  ++course_.step;
  course_.training = means;
  optimizer::Apply(rule_, {.learning_rate = learning_rate, .number = course_.step},
                   workload_.parameters(), gradient, slots_);
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
    views.push_back(checkpoint::MakeView(
        tensor.name, tensor.shape,
        flat.subspan(static_cast<size_t>(tensor.offset), static_cast<size_t>(tensor.size))));
  }
  return views;
}

}  // namespace starling::worker

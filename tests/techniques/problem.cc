// SPDX-License-Identifier: Apache-2.0
#include "tests/techniques/problem.h"

#include <algorithm>
#include <cmath>

#include "common/status/check.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/load_datasets.h"
#include "trainer/kernels/span_math.h"

namespace starling::techniques {
namespace {

data::Datasets LoadDigits() {
  v1alpha1::TrainingJobSpec spec;
  const auto fill = [](v1alpha1::DataSource& source, const char* file) {
    v1alpha1::CsvSource& csv = *source.mutable_csv();
    csv.set_uri(std::string(STARLING_SOURCE_DIR "/examples/data/") + file);
    csv.set_label_column("label");
    csv.set_delimiter(",");
  };
  fill(*spec.mutable_dataset()->mutable_train(), "digits-train.csv");
  fill(*spec.mutable_dataset()->mutable_validation(), "digits-test.csv");
  absl::StatusOr<data::Datasets> sets = data::LoadDatasets(spec);
  STARLING_CHECK(sets.ok(), sets.status().ToString().c_str());
  return *std::move(sets);
}

const data::Datasets& DigitsData() {
  static const auto* const kSets = new data::Datasets(LoadDigits());
  return *kSets;
}

std::span<const float> Features(const data::Dataset& set, std::int64_t sample) {
  const auto width = static_cast<std::size_t>(set.SampleSize());
  return std::span(set.features).subspan(static_cast<std::size_t>(sample) * width, width);
}

// Scores become probabilities; returns the loss of `label`.
double Softmax(std::vector<float>& scores, std::int64_t label) {
  const float highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const float score : scores) sum += std::exp(double{score} - double{highest});
  const double loss =
      std::log(sum) + double{highest} - double{scores[static_cast<std::size_t>(label)]};
  for (float& score : scores) {
    score = static_cast<float>(std::exp(double{score} - double{highest}) / sum);
  }
  return loss;
}

// Input, perhaps one hidden layer of rectified units, ten classes.
class DigitsPerceptron final : public Problem {
 public:
  explicit DigitsPerceptron(int hidden)
      : sets_(DigitsData()),
        inputs_(static_cast<std::size_t>(sets_.train.SampleSize())),
        hidden_(static_cast<std::size_t>(hidden)),
        classes_(static_cast<std::size_t>(sets_.train.classes)),
        last_(hidden_ == 0 ? inputs_ : hidden_) {}

  std::size_t parameters() const override { return Output() + classes_ * (last_ + 1); }
  // A unit's bias is the last number of its row.
  std::vector<std::vector<std::int64_t>> shapes() const override {
    const auto matrix = [](std::size_t rows, std::size_t columns) {
      return std::vector<std::int64_t>{static_cast<std::int64_t>(rows),
                                       static_cast<std::int64_t>(columns + 1)};
    };
    if (hidden_ == 0) return {matrix(classes_, inputs_)};
    return {matrix(hidden_, inputs_), matrix(classes_, hidden_)};
  }
  std::int64_t samples() const override { return sets_.train.size(); }
  std::int64_t Label(std::int64_t sample) const override {
    return sets_.train.labels[static_cast<std::size_t>(sample)];
  }

  void Gradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                std::span<float> gradient) const override {
    kernels::Fill(0, gradient);
    Work work;
    for (const std::int64_t id : ids) {
      const std::span<const float> input = Features(sets_.train, id);
      Forward(parameters, input, work);
      (void)Softmax(work.scores, Label(id));
      work.scores[static_cast<std::size_t>(Label(id))] -= 1;
      Backward(parameters, input, work, gradient);
    }
    kernels::Scale(1.0F / static_cast<float>(ids.size()), gradient);
  }
  double Loss(std::span<const float> parameters) const override {
    double loss = 0;
    Work work;
    for (std::int64_t id = 0; id < samples(); ++id) {
      Forward(parameters, Features(sets_.train, id), work);
      loss += Softmax(work.scores, Label(id));
    }
    return loss / static_cast<double>(samples());
  }
  double Accuracy(std::span<const float> parameters) const override {
    return RightOf(parameters, -1);
  }
  double Recall(std::span<const float> parameters, std::int64_t label) const override {
    return RightOf(parameters, label);
  }

 private:
  struct Work {
    std::vector<float> hidden, scores, back;
  };

  std::size_t Output() const { return hidden_ * (inputs_ + 1); }

  // `rows` outputs: each its weights, then its bias.
  static void Layer(std::span<const float> weights, std::span<const float> input, std::size_t rows,
                    std::vector<float>& output) {
    const std::size_t width = input.size() + 1;
    output.resize(rows);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::span<const float> one = weights.subspan(row * width, width);
      output[row] = static_cast<float>(kernels::Dot(one.first(input.size()), input)) + one.back();
    }
  }
  void Forward(std::span<const float> parameters, std::span<const float> input, Work& work) const {
    if (hidden_ > 0) {
      Layer(parameters, input, hidden_, work.hidden);
      for (float& unit : work.hidden) unit = std::max(unit, 0.0F);
    }
    Layer(parameters.subspan(Output()), hidden_ > 0 ? std::span<const float>(work.hidden) : input,
          classes_, work.scores);
  }
  void Backward(std::span<const float> parameters, std::span<const float> input, Work& work,
                std::span<float> gradient) const {
    const std::span<const float> last = hidden_ > 0 ? std::span<const float>(work.hidden) : input;
    work.back.assign(last_, 0);
    for (std::size_t row = 0; row < classes_; ++row) {
      const std::size_t at = Output() + row * (last_ + 1);
      kernels::Axpy(work.scores[row], last, gradient.subspan(at, last_));
      gradient[at + last_] += work.scores[row];
      if (hidden_ > 0) kernels::Axpy(work.scores[row], parameters.subspan(at, last_), work.back);
    }
    for (std::size_t row = 0; row < hidden_; ++row) {
      if (work.hidden[row] <= 0) continue;
      const std::size_t at = row * (inputs_ + 1);
      kernels::Axpy(work.back[row], input, gradient.subspan(at, inputs_));
      gradient[at + inputs_] += work.back[row];
    }
  }
  double RightOf(std::span<const float> parameters, std::int64_t label) const {
    const data::Dataset& test = *sets_.validation;
    std::int64_t right = 0, all = 0;
    Work work;
    for (std::int64_t id = 0; id < test.size(); ++id) {
      const std::int64_t wanted = test.labels[static_cast<std::size_t>(id)];
      if (label >= 0 && wanted != label) continue;
      Forward(parameters, Features(test, id), work);
      const auto best = std::max_element(work.scores.begin(), work.scores.end());
      right += best - work.scores.begin() == wanted ? 1 : 0;
      ++all;
    }
    return static_cast<double>(right) / static_cast<double>(std::max<std::int64_t>(1, all));
  }

  const data::Datasets& sets_;
  const std::size_t inputs_, hidden_, classes_, last_;
};

// Half the squared distance of w x to the label, over all samples.
class DigitsLeastSquares final : public Problem {
 public:
  std::size_t parameters() const override { return static_cast<std::size_t>(set_.SampleSize()); }
  std::int64_t samples() const override { return set_.size(); }
  std::int64_t Label(std::int64_t sample) const override {
    return set_.labels[static_cast<std::size_t>(sample)];
  }
  void Gradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                std::span<float> gradient) const override {
    kernels::Fill(0, gradient);
    for (const std::int64_t id : ids) {
      const std::span<const float> input = Features(set_, id);
      kernels::Axpy(static_cast<float>(Miss(parameters, id)), input, gradient);
    }
    kernels::Scale(1.0F / static_cast<float>(ids.size()), gradient);
  }
  double Loss(std::span<const float> parameters) const override {
    double loss = 0;
    for (std::int64_t id = 0; id < samples(); ++id) {
      loss += Miss(parameters, id) * Miss(parameters, id) / 2;
    }
    return loss / static_cast<double>(samples());
  }
  double Accuracy(std::span<const float> /*parameters*/) const override { return 0; }
  double Recall(std::span<const float> /*parameters*/, std::int64_t /*label*/) const override {
    return 0;
  }

 private:
  double Miss(std::span<const float> parameters, std::int64_t id) const {
    return kernels::Dot(parameters, Features(set_, id)) - static_cast<double>(Label(id));
  }

  const data::Dataset& set_ = DigitsData().train;
};

// A perceptron of whole numbers: pixels are rounded, a sample that is not on its side of zero by a
// margin pulls the weights by itself. Sixteen such gradients have a mean that is exact in binary.
class WholeNumberPerceptron final : public Problem {
 public:
  std::size_t parameters() const override { return static_cast<std::size_t>(set_.SampleSize()); }
  std::int64_t samples() const override { return set_.size(); }
  std::int64_t Label(std::int64_t sample) const override {
    return set_.labels[static_cast<std::size_t>(sample)] % 2;
  }
  void Gradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                std::span<float> gradient) const override {
    kernels::Fill(0, gradient);
    for (const std::int64_t id : ids) {
      const std::span<const float> input = Features(set_, id);
      const float side = Label(id) == 1 ? 1.0F : -1.0F;
      double score = 0;
      for (std::size_t i = 0; i < input.size(); ++i) {
        score += double{parameters[i]} * std::nearbyint(input[i]);
      }
      if (score * double{side} > 1) continue;
      for (std::size_t i = 0; i < input.size(); ++i) {
        gradient[i] -= side * std::nearbyint(input[i]);
      }
    }
    kernels::Scale(1.0F / static_cast<float>(ids.size()), gradient);
  }
  double Loss(std::span<const float> /*parameters*/) const override { return 0; }
  double Accuracy(std::span<const float> /*parameters*/) const override { return 0; }
  double Recall(std::span<const float> /*parameters*/, std::int64_t /*label*/) const override {
    return 0;
  }

 private:
  const data::Dataset& set_ = DigitsData().train;
};

}  // namespace

void Problem::NarrowGradient(std::span<const float> parameters, std::span<const std::int64_t> ids,
                             const Narrow& narrow, std::span<float> gradient) const {
  std::vector<float> weights(parameters.begin(), parameters.end());
  narrow.round(weights);
  Gradient(weights, ids, gradient);
  kernels::Scale(static_cast<float>(narrow.loss_scale), gradient);
  narrow.round(gradient);
  kernels::Scale(static_cast<float>(1 / narrow.loss_scale), gradient);
}

std::shared_ptr<const Problem> Digits(int hidden) {
  return std::make_shared<DigitsPerceptron>(hidden);
}
std::shared_ptr<const Problem> LeastSquares() { return std::make_shared<DigitsLeastSquares>(); }
std::shared_ptr<const Problem> WholeNumbers() { return std::make_shared<WholeNumberPerceptron>(); }

std::vector<float> DigitPixels(std::int64_t samples) {
  const data::Dataset& set = DigitsData().train;
  const auto count = static_cast<std::ptrdiff_t>(samples * set.SampleSize());
  return {set.features.begin(), set.features.begin() + count};
}

}  // namespace starling::techniques

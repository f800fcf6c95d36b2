// SPDX-License-Identifier: Apache-2.0
#include "api/network/plan.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/network/kinds.h"
#include "api/network/presets.h"
#include "common/status/macros.h"
#include "google/protobuf/message.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::network {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Of a Layer or an InnerLayer; null: it holds none.
const FieldDescriptor* KindFieldOf(const Message& layer) {
  const auto& kinds = *layer.GetDescriptor()->FindOneofByName("kind");
  return layer.GetReflection()->GetOneofFieldDescriptor(layer, &kinds);
}

// Adds layer after layer. Confined to PlanNetwork.
class Planner {
 public:
  Planner(Shape input, const Task& task, std::string named)
      : shape_(input), task_(task), named_(std::move(named)) {
    network_.input = std::move(input);
  }

  absl::Status Add(const v1alpha1::Layer& layer, int index, bool last) {
    const std::string path = absl::StrCat(task_.path, ".layers[", index, "]");
    std::string name = layer.has_name() ? layer.name() : absl::StrCat("layers.", index);
    if (layer.has_residual()) return AddResidual(layer.residual(), path + ".residual", name);
    if (layer.has_transformer_block()) {
      return AddTransformerBlock(layer.transformer_block(), path + ".transformerBlock", name);
    }
    return AddPlainLayer(layer, path, std::move(name), last);
  }

  absl::StatusOr<Network> Finish() && {
    const std::string path = named_.empty() ? task_.path + ".layers" : named_;
    if (network_.parameters.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": no layer has anything to learn; add dense: {}"));
    }
    const std::int64_t count = task_.classes;
    const std::string classes = count == 0 ? "of the" : absl::StrCat("of the ", count);
    if (task_.each_place) return FinishPlaces(path, classes);
    const bool fits = task_.gives_input ? NumbersOf(shape_) == count
                                        : shape_.size() == 1 && (count == 0 || shape_[0] == count);
    if (fits) return std::move(network_);
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the last layer gives ", Text(shape_), ", and must give one number for each ",
        classes, " ", task_.each, "; ",
        shape_.size() == 1 ? "write its units so, or dense: {} without them"
                           : "put flatten: {} or globalAveragePool: {} before a last dense: {}"));
  }

 private:
  absl::StatusOr<Network> FinishPlaces(const std::string& path, const std::string& symbols) {
    network_.places = network_.input.empty() ? 1 : network_.input[0];
    const bool fits = shape_.size() == 2 && shape_[0] == network_.places &&
                      (task_.classes == 0 || shape_[1] == task_.classes);
    if (fits) return std::move(network_);
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the last layer gives ", Text(shape_), ", and must give one number for each ",
        symbols, " symbols at each of the ", network_.places,
        " places; begin with embedding: {width: ...}, keep the places, and end with dense: {}"));
  }

  // In a named network the path is its own, and the layer goes by its name.
  absl::Status At(const std::string& path, const std::string& name, std::string_view words) const {
    if (named_.empty())
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(words)));
    return absl::InvalidArgumentError(
        absl::StrCat(named_, ": its layer ", name, " ", std::string(words)));
  }

  absl::Status AddPlainLayer(const Message& layer, const std::string& path, std::string name,
                             bool last) {
    const FieldDescriptor* field = KindFieldOf(layer);
    const auto kinds = Kinds();
    const auto kind =
        std::ranges::find(kinds, field == nullptr ? 0 : field->number(), &Kind::number);
    if (kind == kinds.end()) return At(path, name, "holds no kind of layer");
    const std::string at = absl::StrCat(path, ".", field->json_name());
    Draft draft{.shape = shape_,
                .operation = {.op = kind->op, .name = std::move(name)},
                .parameters = network_.parameters,
                .first = network_.operations.empty(),
                .last = last,
                .classes = task_.classes,
                .each_place = task_.each_place};
    draft.operation.parameter = network_.parameters.size();
    const absl::Status added = kind->add(layer.GetReflection()->GetMessage(layer, field), draft);
    if (!added.ok()) return At(at, draft.operation.name, std::string(added.message()));
    RETURN_IF_ERROR(CheckTensors(draft, at));
    shape_ = std::move(draft.shape);
    network_.operations.push_back(std::move(draft.operation));
    return absl::OkStatus();
  }

  absl::Status CheckTensors(const Draft& draft, const std::string& at) {
    const std::string& name = draft.operation.name;
    for (std::size_t i = draft.operation.parameter; i < network_.parameters.size(); ++i) {
      const Parameter& parameter = network_.parameters[i];
      numbers_ += std::min(NumbersOf(parameter.shape), kMostNumbers);
      if (!names_.insert(parameter.name).second) {
        return At(at, name,
                  absl::StrCat("names a tensor ", parameter.name,
                               ", as another layer does; give one of them another name"));
      }
    }
    if (numbers_ > kMostNumbers || NumbersOf(draft.shape) > kMostNumbers) {
      return At(at, name,
                absl::StrCat("makes the network too large: there may be ", kMostNumbers,
                             " numbers in its tensors, and in what a layer gives"));
    }
    return absl::OkStatus();
  }

  void Push(Op op, const std::string& name) {
    network_.operations.push_back({.op = op, .name = name});
  }

  absl::Status AddResidual(const v1alpha1::Residual& block, const std::string& path,
                           const std::string& name) {
    const Shape given = shape_;
    Push(Op::kKeep, name);
    for (int i = 0; i < block.layers_size(); ++i) {
      const v1alpha1::InnerLayer& layer = block.layers(i);
      RETURN_IF_ERROR(AddPlainLayer(
          layer, absl::StrCat(path, ".layers[", i, "]"),
          absl::StrCat(name, ".", layer.has_name() ? layer.name() : absl::StrCat("layers.", i)),
          /*last=*/false));
    }
    const Shape made = shape_;
    if (block.has_projection()) {
      Push(Op::kSwap, name);
      shape_ = given;
      RETURN_IF_ERROR(Project(block.projection(), made, path + ".projection", name));
    }
    const Shape beside = block.has_projection() ? shape_ : given;
    if (beside != made) {
      return At(path, name,
                absl::StrCat("adds what its layers give, ", Text(made), ", to ",
                             block.has_projection() ? "its projected input, " : "its input, ",
                             Text(beside), "; ",
                             IsImage(given) && IsImage(made)
                                 ? "write projection: {stride: ...} so that both are equal"
                                 : "let its layers give what they are given"));
    }
    Push(Op::kAdd, name);
    return absl::OkStatus();
  }

  absl::Status AddTransformerBlock(const v1alpha1::TransformerBlock& block, const std::string& path,
                                   const std::string& name) {
    if (shape_.size() != 2) {
      return At(path, name,
                absl::StrCat("needs a sequence [length, width], and is given ", Text(shape_), "; ",
                             kMakeSequence));
    }
    const std::string outer = named_;
    if (named_.empty()) named_ = path;  // the file does not have the layers that it stands for
    for (const v1alpha1::Residual& half : HalvesOf(block, shape_[1])) {
      RETURN_IF_ERROR(AddResidual(half, path, name));
    }
    named_ = outer;
    return absl::OkStatus();
  }

  absl::Status Project(const v1alpha1::Projection& projection, const Shape& made,
                       const std::string& path, const std::string& name) {
    v1alpha1::InnerLayer layer;
    v1alpha1::Convolution& convolution = *layer.mutable_convolution();
    convolution.set_channels(made[0]);
    convolution.set_kernel(1);
    convolution.set_stride(projection.stride());
    convolution.set_bias(false);
    convolution.set_initialization(projection.initialization());
    RETURN_IF_ERROR(AddPlainLayer(layer, path, name + ".downsample.0", /*last=*/false));
    if (projection.has_batch_norm() && !projection.batch_norm()) return absl::OkStatus();
    layer.mutable_batch_norm();
    return AddPlainLayer(layer, path, name + ".downsample.1", /*last=*/false);
  }

  Network network_;
  Shape shape_;
  const Task task_;
  std::string named_;  // path of what stands for layers; empty: the file has them itself
  std::int64_t numbers_ = 0;
  std::set<std::string> names_;
};

// The path of a named network; empty where the file has the layers itself.
std::string PathOfNamed(const v1alpha1::Model& model, const std::string& path) {
  const auto& kinds = *model.GetDescriptor()->FindOneofByName("kind");
  const FieldDescriptor* field = model.GetReflection()->GetOneofFieldDescriptor(model, &kinds);
  return field == nullptr ? "" : absl::StrCat(path, ".", field->json_name());
}

// The first layer that `is` holds of, also within blocks.
template <typename Is>
std::optional<std::string> PathOfFirst(const v1alpha1::Model& model, const std::string& of_model,
                                       const Is& is) {
  const std::string named = PathOfNamed(model, of_model);
  const LayerList layers = LayersOf(model);
  for (int i = 0; i < layers.size(); ++i) {
    const std::string path = absl::StrCat(of_model, ".layers[", i, "]");
    const v1alpha1::Residual& block = layers[i].residual();
    const bool found = is(layers[i]) || std::ranges::any_of(block.layers(), is);
    if (found) return named.empty() ? path : named;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Network> PlanNetwork(const v1alpha1::Model& model, const Shape& input,
                                    std::int64_t classes) {
  return PlanNetwork(model, input, Task{.classes = classes});
}

absl::StatusOr<Network> PlanNetwork(const v1alpha1::Model& model, const Shape& input,
                                    const Task& wanted) {
  Task task = wanted;
  if (task.gives_input) task.classes = NumbersOf(input);
  const std::string named = PathOfNamed(model, task.path);
  if (model.has_autoencoder() && !task.gives_input) {
    return absl::InvalidArgumentError(absl::StrCat(
        named, ": gives samples back, which workload.autoencoder wants; use mlp or layers"));
  }
  Shape shape = input;
  if (const auto need = NeedOf(model)) {
    if (!Meets(*need, input)) {
      return absl::InvalidArgumentError(
          absl::StrCat(named, ": needs images [channels, height, width] of at least ", need->side,
                       " by ", need->side, ", but a sample has shape ", Text(input),
                       task.each_place ? ": use transformer or layers"
                                       : ": set the dataset's shape, or use mlp"));
    }
    if (shape.size() == 2) shape.insert(shape.begin(), 1);  // without an axis of channels
  }
  const LayerList layers = LayersOf(model);
  Planner planner(std::move(shape), task, named);
  for (int i = 0; i < layers.size(); ++i) {
    RETURN_IF_ERROR(planner.Add(layers[i], i, i + 1 == layers.size()));
  }
  return std::move(planner).Finish();
}

Described ModelOf(const v1alpha1::Workload& workload) {
  if (workload.has_regression()) {
    return {workload.regression().model(),
            {.path = kRegressionPath, .each = "columns to be predicted"}};
  }
  if (workload.has_autoencoder()) {
    return {workload.autoencoder().model(),
            {.path = kAutoencoderPath, .gives_input = true, .each = "numbers of a sample"}};
  }
  if (!workload.has_language_model()) {
    return {workload.classification().model(), {}, workload.classification().has_model()};
  }
  const v1alpha1::LanguageModel& language = workload.language_model();
  constexpr std::int64_t kBytes = 256;
  return {language.model(),
          {.path = kLanguageModelPath,
           .classes = language.symbols() == v1alpha1::TEXT_SYMBOLS_BYTES ? kBytes : 0,
           .each_place = true}};
}

bool Meets(const ImageNeed& need, const Shape& shape) {
  const std::size_t sides = shape.size();
  return (sides == 2 || sides == 3) && shape[sides - 2] >= need.side &&
         shape[sides - 1] >= need.side;
}

std::optional<std::string> PathOfBatchNorm(const v1alpha1::Model& model, const std::string& path) {
  return PathOfFirst(model, path, [](const auto& layer) {
    if constexpr (requires { layer.residual(); }) {
      const v1alpha1::Residual& block = layer.residual();
      const v1alpha1::Projection& projection = block.projection();
      if (block.has_projection() && (!projection.has_batch_norm() || projection.batch_norm())) {
        return true;
      }
    }
    return layer.has_batch_norm();
  });
}

std::optional<std::string> PathOfEmbedding(const v1alpha1::Model& model, const std::string& path) {
  const LayerList layers = LayersOf(model);
  if (layers.empty() || !layers[0].has_embedding()) return std::nullopt;
  return path + ".layers[0]";  // elsewhere it does not fit
}

}  // namespace starling::network

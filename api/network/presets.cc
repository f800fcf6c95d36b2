// SPDX-License-Identifier: Apache-2.0
#include "api/network/presets.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/network/plan.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::network {
namespace {

using v1alpha1::InnerLayer;
using v1alpha1::Layer;
using v1alpha1::Model;

// Writes layers down, one a call. A number of 0 is left out of the layer.
class Writer {
 public:
  explicit Writer(LayerList& layers) : layers_(layers) {}

  Layer& Add() { return *layers_.Add(); }
  void Relu() { Add().mutable_relu(); }
  void Flatten() { Add().mutable_flatten(); }
  void Dropout(double rate) { Add().mutable_dropout()->set_rate(rate); }
  void MaxPool(std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0) {
    v1alpha1::Pooling& pooling = *Add().mutable_max_pool();
    pooling.set_kernel(kernel);
    pooling.set_stride(stride);
    pooling.set_padding(padding);
  }
  void AdaptivePool(std::int64_t size) { Add().mutable_adaptive_average_pool()->set_size(size); }
  // Without units: one for each class.
  void Dense(const std::string& name, std::int64_t units = 0,
             v1alpha1::Initialization initialization = v1alpha1::INITIALIZATION_UNIFORM) {
    Layer& layer = Add();
    layer.set_name(name);
    layer.mutable_dense()->set_initialization(initialization);
    if (units > 0) layer.mutable_dense()->set_units(units);
  }
  struct Window {
    std::int64_t channels, kernel, stride = 1, padding = 0;
  };
  void Convolution(const std::string& name, const Window& window,
                   v1alpha1::Initialization initialization = v1alpha1::INITIALIZATION_UNIFORM) {
    Layer& layer = Add();
    layer.set_name(name);
    *layer.mutable_convolution() = Of(window, initialization);
  }
  static v1alpha1::Convolution Of(const Window& window, v1alpha1::Initialization initialization) {
    v1alpha1::Convolution convolution;
    convolution.set_channels(window.channels);
    convolution.set_kernel(window.kernel);
    convolution.set_stride(window.stride);
    convolution.set_padding(window.padding);
    convolution.set_initialization(initialization);
    return convolution;
  }
  int next() const { return layers_.size(); }

 private:
  LayerList& layers_;
};

void WriteMlp(const Model& model, LayerList& layers) {
  Writer write(layers);
  write.Flatten();
  int index = 0;
  for (const std::int64_t width : model.mlp().hidden()) {
    write.Dense(absl::StrCat("layers.", index++), width);
    write.Relu();
  }
  write.Dense(absl::StrCat("layers.", index));
}

void WriteAutoencoder(const Model& model, LayerList& layers) {
  const auto& hidden = model.autoencoder().hidden();
  Writer write(layers);
  write.Flatten();
  for (int i = 0; i < hidden.size(); ++i) {
    if (i > 0) write.Relu();
    write.Dense(absl::StrCat("encoder.", i), hidden[i]);
  }
  for (int i = hidden.size() - 1; i >= 0; --i) {
    write.Dense(absl::StrCat("decoder.", hidden.size() - 1 - i), i > 0 ? hidden[i - 1] : 0);
    if (i > 0) write.Relu();
  }
}

void WriteLinear(const Model& /*model*/, LayerList& layers) {
  Writer write(layers);
  write.Flatten();
  write.Dense("linear");
}

void WriteLeNet5(const Model& /*model*/, LayerList& layers) {
  Writer write(layers);
  write.Convolution("conv1", {.channels = 6, .kernel = 5, .padding = 2});
  write.Relu();
  write.MaxPool(2, 2);
  write.Convolution("conv2", {.channels = 16, .kernel = 5});
  write.Relu();
  write.MaxPool(2, 2);
  write.Flatten();
  write.Dense("fc1", 120);
  write.Relu();
  write.Dense("fc2", 84);
  write.Relu();
  write.Dense("fc3");
}

// The schema's default, for specs that were not resolved.
double DropoutOf(const v1alpha1::DropoutNetwork& network) {
  return network.has_dropout() ? network.dropout() : 0.5;
}

constexpr double kTransformerDropout = 0.1;  // the schema's default

constexpr auto kKaiming = v1alpha1::INITIALIZATION_KAIMING;

// Numbered as torchvision's sequences are: `at` counts what they hold.
void WriteAlexNet(const Model& model, LayerList& layers) {
  Writer write(layers);
  const auto convolution = [&](int at, const Writer::Window& window) {
    write.Convolution(absl::StrCat("features.", at), window);
    write.Relu();
  };
  convolution(0, {.channels = 64, .kernel = 11, .stride = 4, .padding = 2});
  write.MaxPool(3, 2);
  convolution(3, {.channels = 192, .kernel = 5, .padding = 2});
  write.MaxPool(3, 2);
  convolution(6, {.channels = 384, .kernel = 3, .padding = 1});
  convolution(8, {.channels = 256, .kernel = 3, .padding = 1});
  convolution(10, {.channels = 256, .kernel = 3, .padding = 1});
  write.MaxPool(3, 2);
  write.AdaptivePool(6);
  write.Flatten();
  for (const int at : {1, 4}) {
    write.Dropout(DropoutOf(model.alexnet()));
    write.Dense(absl::StrCat("classifier.", at), 4096);
    write.Relu();
  }
  write.Dense("classifier.6");
}

// Channels of the convolutions of 3 by 3, and 0 for a pooling.
constexpr std::int64_t kVgg11[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
constexpr std::int64_t kVgg16[] = {64, 64,  0,   128, 128, 0,   256, 256, 256,
                                   0,  512, 512, 512, 0,   512, 512, 512, 0};

void WriteVgg(std::span<const std::int64_t> features, double dropout, LayerList& layers) {
  Writer write(layers);
  for (const std::int64_t channels : features) {
    if (channels == 0) {
      write.MaxPool(2, 2);
      continue;
    }
    write.Convolution(absl::StrCat("features.", write.next()),
                      {.channels = channels, .kernel = 3, .padding = 1}, kKaiming);
    write.Relu();
  }
  write.AdaptivePool(7);
  write.Flatten();
  for (const int at : {0, 3}) {
    write.Dense(absl::StrCat("classifier.", at), 4096, kKaiming);
    write.Relu();
    write.Dropout(dropout);
  }
  write.Dense("classifier.6");
}

void WriteVgg11(const Model& model, LayerList& layers) {
  WriteVgg(kVgg11, DropoutOf(model.vgg11()), layers);
}

void WriteVgg16(const Model& model, LayerList& layers) {
  WriteVgg(kVgg16, DropoutOf(model.vgg16()), layers);
}

// A residual block's convolution and the normalization after it.
void AddNormalised(int number, const Writer::Window& window, v1alpha1::Residual& block) {
  InnerLayer& convolution = *block.add_layers();
  convolution.set_name(absl::StrCat("conv", number));
  *convolution.mutable_convolution() = Writer::Of(window, kKaiming);
  convolution.mutable_convolution()->set_bias(false);
  InnerLayer& norm = *block.add_layers();
  norm.set_name(absl::StrCat("bn", number));
  norm.mutable_batch_norm();
}

struct Residuals {
  int blocks[4];    // of each stage
  bool bottleneck;  // 1 by 1, 3 by 3 and four times as many channels by 1 by 1
};
constexpr Residuals kResNet18 = {{2, 2, 2, 2}, false};
constexpr Residuals kResNet50 = {{3, 4, 6, 3}, true};

void WriteBlock(std::int64_t channels, std::int64_t stride, bool bottleneck, bool projected,
                v1alpha1::Residual& block) {
  if (bottleneck) {
    AddNormalised(1, {.channels = channels, .kernel = 1}, block);
    block.add_layers()->mutable_relu();
    AddNormalised(2, {.channels = channels, .kernel = 3, .stride = stride, .padding = 1}, block);
    block.add_layers()->mutable_relu();
    AddNormalised(3, {.channels = 4 * channels, .kernel = 1}, block);
  } else {
    AddNormalised(1, {.channels = channels, .kernel = 3, .stride = stride, .padding = 1}, block);
    block.add_layers()->mutable_relu();
    AddNormalised(2, {.channels = channels, .kernel = 3, .padding = 1}, block);
  }
  if (!projected) return;
  block.mutable_projection()->set_stride(stride);
  block.mutable_projection()->set_initialization(kKaiming);
}

void WriteResNet(const Residuals& residuals, LayerList& layers) {
  Writer write(layers);
  write.Convolution("conv1", {.channels = 64, .kernel = 7, .stride = 2, .padding = 3}, kKaiming);
  layers[0].mutable_convolution()->set_bias(false);
  Layer& norm = write.Add();
  norm.set_name("bn1");
  norm.mutable_batch_norm();
  write.Relu();
  write.MaxPool(3, 2, 1);
  std::int64_t channels = 64;
  for (int stage = 0; stage < 4; ++stage) {
    for (int i = 0; i < residuals.blocks[stage]; ++i) {
      Layer& block = write.Add();
      block.set_name(absl::StrCat("layer", stage + 1, ".", i));
      const bool shrinks = stage > 0 && i == 0;
      WriteBlock(channels, shrinks ? 2 : 1, residuals.bottleneck,
                 shrinks || (i == 0 && residuals.bottleneck), *block.mutable_residual());
      write.Relu();
    }
    channels *= 2;
  }
  write.Add().mutable_global_average_pool();
  write.Dense("fc");
}

void WriteResNet18(const Model& /*model*/, LayerList& layers) { WriteResNet(kResNet18, layers); }
void WriteResNet50(const Model& /*model*/, LayerList& layers) { WriteResNet(kResNet50, layers); }

// Its tensors are named as the modules of PyTorch's own parts would be.
void WriteTransformer(const Model& model, LayerList& layers) {
  const v1alpha1::Transformer& transformer = model.transformer();
  const auto or_default = [](std::int64_t value, std::int64_t fallback) {
    return value == 0 ? fallback : value;  // the schema's, for specs that were not resolved
  };
  const double rate = transformer.has_dropout() ? transformer.dropout() : kTransformerDropout;
  Writer write(layers);
  Layer& embedding = write.Add();
  embedding.set_name("embedding");
  embedding.mutable_embedding()->set_width(or_default(transformer.width(), 128));
  Layer& positions = write.Add();
  positions.set_name("positions");
  positions.mutable_positions();
  write.Dropout(rate);
  for (std::int64_t i = 0; i < or_default(transformer.blocks(), 4); ++i) {
    Layer& layer = write.Add();
    layer.set_name(absl::StrCat("blocks.", i));
    v1alpha1::TransformerBlock& block = *layer.mutable_transformer_block();
    block.set_heads(or_default(transformer.heads(), 4));
    block.set_causal(true);
    block.set_dropout(rate);
  }
  Layer& norm = write.Add();
  norm.set_name("norm");
  norm.mutable_layer_norm();
  write.Dense("head");
}

InnerLayer& AddInner(const char* name, v1alpha1::Residual& block) {
  InnerLayer& layer = *block.add_layers();
  layer.set_name(name);
  return layer;
}

struct Named {
  Model::KindCase kind;
  std::int64_t side;  // of the smallest image; 0: samples of any shape
  void (*write)(const Model& model, LayerList& layers);
};

constexpr Named kNamed[] = {
    {Model::kMlp, 0, WriteMlp},
    {Model::kLinear, 0, WriteLinear},
    {Model::kLenet5, 20, WriteLeNet5},
    {Model::kAlexnet, 63, WriteAlexNet},
    {Model::kVgg11, 32, WriteVgg11},
    {Model::kVgg16, 32, WriteVgg16},
    {Model::kResnet18, 32, WriteResNet18},
    {Model::kResnet50, 32, WriteResNet50},
    {Model::kTransformer, 0, WriteTransformer},
    {Model::kAutoencoder, 0, WriteAutoencoder},
};

}  // namespace

LayerList LayersOf(const Model& model) {
  const auto* const named = std::ranges::find(kNamed, model.kind_case(), &Named::kind);
  if (named == std::end(kNamed)) return model.layers();
  LayerList layers;
  named->write(model, layers);
  return layers;
}

std::array<v1alpha1::Residual, 2> HalvesOf(const v1alpha1::TransformerBlock& block,
                                           std::int64_t width) {
  const double rate = block.has_dropout() ? block.dropout() : kTransformerDropout;
  std::array<v1alpha1::Residual, 2> halves;
  AddInner("norm1", halves[0]).mutable_layer_norm();
  v1alpha1::Attention& attention = *AddInner("self_attn", halves[0]).mutable_attention();
  attention.set_heads(block.heads());
  attention.set_causal(block.causal());
  AddInner("dropout1", halves[0]).mutable_dropout()->set_rate(rate);
  AddInner("norm2", halves[1]).mutable_layer_norm();
  AddInner("linear1", halves[1])
      .mutable_dense()
      ->set_units(block.has_hidden() ? block.hidden() : 4 * width);
  AddInner("gelu", halves[1]).mutable_gelu();
  AddInner("linear2", halves[1]).mutable_dense()->set_units(width);
  AddInner("dropout2", halves[1]).mutable_dropout()->set_rate(rate);
  return halves;
}

std::optional<ImageNeed> NeedOf(const Model& model) {
  const auto* const named = std::ranges::find(kNamed, model.kind_case(), &Named::kind);
  if (named == std::end(kNamed) || named->side == 0) return std::nullopt;
  const auto* field = Model::descriptor()->FindFieldByNumber(model.kind_case());
  return ImageNeed{field->json_name(), named->side};
}

}  // namespace starling::network

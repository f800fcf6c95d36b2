// SPDX-License-Identifier: Apache-2.0
// The kinds of layers: what each makes of the shape that it is given, and which tensors it has.
//
// A kind is a field of the contract's Layer (and InnerLayer), and a row of the table in kinds.cc:
// the operation, and the function that drafts it. To add one: see network.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "api/network/network.h"
#include "google/protobuf/message.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::network {

inline constexpr std::int64_t kMostNumbers = std::int64_t{1} << 32;  // 16 GiB

std::string Text(const Shape& shape);
// More than kMostNumbers if there are too many.
std::int64_t NumbersOf(const Shape& shape);
// What makes a sequence of data that are none.
inline constexpr char kMakeSequence[] =
    "give the dataset a shape of two sides, or put an embedding before it";
inline bool IsImage(const Shape& shape) { return shape.size() == 3; }

// A layer on its way into the network.
struct Draft {
  Shape shape;  // what it is given; the layer makes it what it gives
  Operation operation;
  std::vector<Parameter>& parameters;
  bool first = false;
  bool last = false;  // of the network
  std::int64_t classes = 0;
  bool each_place = false;  // it must not see later places

  void Add(std::string_view tensor, Shape of, std::int64_t fan_in, Initial initial,
           float momentum = 0) {
    parameters.push_back({absl::StrCat(operation.name, ".", std::string(tensor)), std::move(of),
                          fan_in, initial, momentum});
  }
  // A weight and, where the layer has one, a bias.
  void AddWeight(Shape of, std::int64_t fan_in, v1alpha1::Initialization initialization) {
    const bool kaiming = initialization == v1alpha1::INITIALIZATION_KAIMING;
    const std::int64_t outputs = of.front();
    Add("weight", std::move(of), fan_in, kaiming ? Initial::kKaiming : Initial::kUniform);
    if (!operation.bias) return;
    Add("bias", {outputs}, fan_in, kaiming ? Initial::kZeros : Initial::kUniform);
  }
  absl::Status Refuse(std::string_view needs, std::string_view remedy) const {
    return absl::InvalidArgumentError(absl::StrCat("needs ", std::string(needs), ", and is given ",
                                                   Text(shape), "; ", std::string(remedy)));
  }
  absl::Status NeedsImage() const {
    if (IsImage(shape)) return absl::OkStatus();
    return Refuse("an image [channels, height, width]",
                  "give the dataset a shape of three sides, or put this layer before what makes "
                  "its input flat");
  }
  absl::Status NeedsSequence() const {
    if (shape.size() == 2) return absl::OkStatus();
    return Refuse("a sequence [length, width]", kMakeSequence);
  }
};

struct Kind {
  int number;  // of the field, in Layer and in InnerLayer
  Op op;
  // `fields` is that field's message. INVALID_ARGUMENT, words that go on after the layer's name,
  // where the layer does not fit what it is given.
  absl::Status (*add)(const google::protobuf::Message& fields, Draft& draft);
};

std::span<const Kind> Kinds();

}  // namespace starling::network

// SPDX-License-Identifier: Apache-2.0
// A trained network as an ONNX model, which onnxruntime and other programs compute: one function
// for each of the network's operations, which adds that operation's nodes to the graph.
//
// The source has plain types only, for it crosses the boundary of the engine's library
// (trainer/engine/engine_library.h), which holds ONNX's classes. To add an operation: see
// api/network/network.h.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "api/network/network.h"

namespace starling::onnx {

// What the graph gives of each sample. Its outputs are called by these words.
enum class Result {
  kProbabilities,   // "probabilities": of each class
  kScores,          // "scores": of each place, of each symbol, not normalised
  kPredictions,     // "predictions": of each column
  kReconstruction,  // "reconstruction": the sample, scaled, as the network gives it back; "error":
                    // the mean of the squares by which that differs from the scaled sample
};

// As what matrices and kernels stand in the file. The graph computes with floats.
enum class Weights {
  kFloat32,
  kInt8,  // a byte each, and a scale for each output: a quarter of the size
};

struct Source {
  network::Network network;
  std::vector<std::span<const float>> parameters = {};  // in the network's order
  Result result = Result::kProbabilities;
  Weights weights = Weights::kFloat32;
  bool sigmoid = false;  // what the network gives goes through one
  // The graph takes `mean` from each sample and divides it by `deviation`: one value for all
  // numbers of a sample, or one for each. Empty: samples go into the network as they are.
  std::vector<float> mean = {};
  std::vector<float> deviation = {};
  std::map<std::string, std::string> metadata = {};  // becomes the model's metadata_props
};

// The file. Its one input is "input", of as many samples at a time as one likes: floats, or 64-bit
// integers where the network begins with an embedding. INVALID_ARGUMENT where ONNX cannot hold it.
absl::StatusOr<std::string> Encode(const Source& source);

// The same as a function of the engine's library.
inline constexpr char kEncodeSymbol[] = "starling_encode_onnx";
using EncodeFunction = void (*)(const Source& source, absl::StatusOr<std::string>* file);

}  // namespace starling::onnx

// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/network_engine.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/writer.h"
#include "common/bytes/bytes.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/numerics/numerics.h"
#include "trainer/workload/initial_model.h"

namespace starling::workload {
namespace {

std::string BesideTheProgram() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path library = program.parent_path() / engine::kEngineLibrary;
  if (error || !std::filesystem::exists(library, error)) return engine::kEngineLibrary;
  return library.string();
}

// A function of the library.
absl::StatusOr<void*> Load(const char* name) {
  const std::string path = BesideTheProgram();
  // Lazy: binding all symbols of libtorch and its libraries costs another 80 ms. Global, so that
  // the engine can ask the BLAS library for its name. It is never closed.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load the engine: ", dlerror()));
  }
  void* symbol = dlsym(library, name);
  if (symbol == nullptr) {
    return absl::NotFoundError(absl::StrCat("not an engine: ", dlerror()));
  }
  return symbol;
}

}  // namespace

absl::StatusOr<engine::OpenEngineFunction> LoadEngineLibrary() {
  ASSIGN_OR_RETURN(void* symbol, Load(engine::kOpenEngineSymbol));
  return reinterpret_cast<engine::OpenEngineFunction>(symbol);
}

absl::StatusOr<onnx::EncodeFunction> LoadOnnxEncoder() {
  ASSIGN_OR_RETURN(void* symbol, Load(onnx::kEncodeSymbol));
  return reinterpret_cast<onnx::EncodeFunction>(symbol);
}

EngineLibrary BeginToLoadEngine() {
  return std::async(std::launch::async, LoadEngineLibrary).share();
}

absl::StatusOr<OpenedNetwork> OpenNetwork(const v1alpha1::TrainingJobSpec& spec,
                                          const EngineLibrary& library, engine::EngineConfig config,
                                          std::string& data_digest) {
  ASSIGN_OR_RETURN(const engine::OpenEngineFunction open, library.get());
  config.seed = static_cast<uint64_t>(spec.seed());
  config.micro_batch = spec.dataset().micro_batch_size();
  const v1alpha1::AllReduce& exchange = spec.exchange().all_reduce();
  if (exchange.has_bucket_bytes()) config.bucket_bytes = exchange.bucket_bytes();
  config.round = numerics::ComputeRounding(spec.numerics());
  engine::OpenedEngine opened;
  open(config, &opened);
  OpenedNetwork network;
  ASSIGN_OR_RETURN(network.engine, std::move(opened.engine));
  network.numeric_identity = std::move(opened.numeric_identity);
  network.description = DescriptionOf(spec);
  const std::optional<InitialModel> initial = InitialModelOf(spec.workload());
  if (!initial) return network;
  ASSIGN_OR_RETURN(const std::string digest, ReadInitialModel(*initial, network.engine->tensors(),
                                                              network.engine->parameters()));
  data_digest = bytes::Sha256Hex(data_digest + digest);
  return network;
}

Description DescriptionOf(const v1alpha1::TrainingJobSpec& spec) {
  const v1alpha1::Model& model = network::ModelOf(spec.workload()).model;
  return {{"starling.workload", NameOf(spec.workload())},
          {"starling.model", json::Dump(spec::WriteMessage(model))}};
}

}  // namespace starling::workload

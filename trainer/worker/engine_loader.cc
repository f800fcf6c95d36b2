// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/engine_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace starling::worker {
namespace {

std::string BesideTheProgram() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path library = program.parent_path() / engine::kEngineLibrary;
  if (error || !std::filesystem::exists(library, error)) return engine::kEngineLibrary;
  return library.string();
}

}  // namespace

absl::StatusOr<engine::OpenEngineFunction> LoadEngineLibrary() {
  const std::string path = BesideTheProgram();
  // Lazy: binding all symbols of libtorch's 300 libraries would cost another 80 ms. Global, so that
  // the engine can ask the BLAS library for its name. It is never closed.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("cannot load the engine: ", dlerror()));
  }
  void* symbol = dlsym(library, engine::kOpenEngineSymbol);
  if (symbol == nullptr) {
    return absl::NotFoundError(absl::StrCat("not an engine: ", dlerror()));
  }
  return reinterpret_cast<engine::OpenEngineFunction>(symbol);
}

engine::EngineConfig EngineConfigOf(const v1alpha1::TrainingJobSpec& spec,
                                    const data::Dataset& train) {
  engine::EngineConfig config;
  const v1alpha1::Model& model = spec.workload().classification().model();
  config.model = model.has_lenet5() ? engine::ModelKind::kLeNet5 : engine::ModelKind::kMlp;
  config.hidden.assign(model.mlp().hidden().begin(), model.mlp().hidden().end());
  config.input_shape = train.shape;
  config.classes = train.classes;
  config.seed = static_cast<uint64_t>(spec.seed());
  const v1alpha1::AllReduce& exchange = spec.exchange().all_reduce();
  if (exchange.has_bucket_bytes()) config.bucket_bytes = exchange.bucket_bytes();
  return config;
}

}  // namespace starling::worker

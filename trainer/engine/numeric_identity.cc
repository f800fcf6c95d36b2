// SPDX-License-Identifier: Apache-2.0
#include "trainer/engine/numeric_identity.h"

#include <dlfcn.h>
#include <torch/torch.h>
#include <torch/version.h>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace starling::engine {
namespace {

// What OpenBLAS says of itself; other BLAS libraries have no such function.
std::string AskBlas(const char* function) {
  void* symbol = dlsym(RTLD_DEFAULT, function);
  if (symbol == nullptr) return "unknown";
  return reinterpret_cast<const char* (*)()>(symbol)();
}

// The value behind `label` in libtorch's description of its build.
std::string FromConfig(const std::string& config, const std::string& label) {
  const size_t at = config.find(label);
  if (at == std::string::npos) return "unknown";
  const size_t begin = at + label.size();
  const std::string line = config.substr(begin, config.find('\n', begin) - begin);
  return std::string(absl::StripAsciiWhitespace(line.substr(0, line.find('('))));
}

}  // namespace

std::string NumericIdentity() {
  const std::string config = at::show_config();
  const std::vector<std::string> blas = absl::StrSplit(AskBlas("openblas_get_config"), ' ');
  return absl::StrCat("blas=", AskBlas("openblas_get_corename"), "/",
                      blas.size() > 1 ? blas[1] : "unknown",
                      " cpu=", FromConfig(config, "CPU capability usage:"),
                      " dnnl=", FromConfig(config, "Intel(R) MKL-DNN v"),
                      " threads=", at::get_num_threads(), " torch=", TORCH_VERSION);
}

}  // namespace starling::engine

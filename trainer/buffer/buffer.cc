// SPDX-License-Identifier: Apache-2.0
#include "trainer/buffer/buffer.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace starling::buffer {
namespace {

struct Kind {
  std::string_view name;
  std::size_t size;
};

// In the order of DType.
constexpr Kind kKinds[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"I16", 2}, {"F16", 2},
                           {"BF16", 2}, {"I32", 4}, {"F32", 4}, {"I64", 8}, {"F64", 8}};

const Kind& KindOf(DType type) { return kKinds[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view NameOf(DType type) { return KindOf(type).name; }

std::size_t SizeOf(DType type) { return KindOf(type).size; }

std::optional<DType> ParseDType(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    if (kKinds[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

absl::Status CheckBuilt(Device device) {
  if (device == Device::kCpu) return absl::OkStatus();
  return absl::UnimplementedError(
      "a buffer lies on a CUDA device, and this build exchanges host memory only: copy it to the "
      "host first");
}

absl::Status CheckAccess(DType type, Device device, const void* data, DType wanted,
                         std::size_t alignment) {
  if (absl::Status built = CheckBuilt(device); !built.ok()) return built;
  if (type != wanted) {
    return absl::InvalidArgumentError(absl::StrCat("a buffer of ", std::string(NameOf(type)),
                                                   " was given where ", std::string(NameOf(wanted)),
                                                   " is wanted"));
  }
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    return absl::InvalidArgumentError(absl::StrCat("a buffer of ", std::string(NameOf(type)),
                                                   " does not begin at a multiple of ", alignment,
                                                   " bytes; copy it to memory of its own"));
  }
  return absl::OkStatus();
}

}  // namespace starling::buffer

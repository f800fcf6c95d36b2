// SPDX-License-Identifier: Apache-2.0
#include "trainer/workload/initial_model.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/storage/blob_store.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/source.h"

namespace starling::workload {
namespace {

absl::Status Refused(const data::FileInfo& file, const std::string& words) {
  return data::FieldError(absl::StatusCode::kInvalidArgument, kInitialModel,
                          absl::StrCat(file.path, ": ", words));
}

absl::Status Copy(const data::FileInfo& file, const checkpoint::Decoded& model,
                  const engine::Tensor& tensor, std::span<float> into) {
  const checkpoint::TensorView* found = model.Find(tensor.name);
  if (found == nullptr) {
    return Refused(file, absl::StrCat("has no tensor ", tensor.name,
                                      "; give a file of the same network, with the same names"));
  }
  if (found->type != buffer::DType::kF32) {
    return Refused(
        file, absl::StrCat("has ", tensor.name, " as ", std::string(buffer::NameOf(found->type)),
                           "; save it as 32-bit floats (F32)"));
  }
  if (found->shape != tensor.shape) {
    return Refused(
        file, absl::StrCat("has ", tensor.name, " of shape [", absl::StrJoin(found->shape, ", "),
                           "], but the model's is [", absl::StrJoin(tensor.shape, ", "), "]"));
  }
  std::ranges::copy(found->Floats(), into.begin());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ReadInitialModel(const std::string& uri,
                                             std::span<const engine::Tensor> tensors,
                                             std::span<float> parameters) {
  ASSIGN_OR_RETURN(const data::FileInfo file, data::Inspect(uri, kInitialModel));
  std::vector<std::byte> content(file.size);
  RETURN_IF_ERROR(data::ReadRange(file, 0, content, kInitialModel));
  const auto model = checkpoint::Decode(content);
  if (!model.ok()) {
    return Refused(file, absl::StrCat("is no safetensors file: ", model.status().message()));
  }
  for (const engine::Tensor& tensor : tensors) {
    RETURN_IF_ERROR(Copy(file, *model, tensor,
                         parameters.subspan(static_cast<std::size_t>(tensor.offset),
                                            static_cast<std::size_t>(tensor.size))));
  }
  return bytes::ToHex(bytes::Sha256Of(content));
}

}  // namespace starling::workload

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
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/data/source.h"

namespace starling::workload {
namespace {

// A file that does not fit, by the field that names it.
struct Source {
  const data::FileInfo& file;
  const std::string& field;

  absl::Status Refused(const std::string& words) const {
    return data::FieldError(absl::StatusCode::kInvalidArgument, field,
                            absl::StrCat(file.path, ": ", words));
  }
};

absl::Status Copy(const Source& source, const checkpoint::Decoded& model,
                  const engine::Tensor& tensor, std::span<float> into) {
  const checkpoint::TensorView* found = model.Find(tensor.name);
  if (found == nullptr) {
    return source.Refused(absl::StrCat("has no tensor ", tensor.name,
                                       "; give a file of the same network, with the same names"));
  }
  if (found->type != buffer::DType::kF32) {
    return source.Refused(absl::StrCat("has ", tensor.name, " as ",
                                       std::string(buffer::NameOf(found->type)),
                                       "; save it as 32-bit floats (F32)"));
  }
  if (found->shape != tensor.shape) {
    return source.Refused(absl::StrCat("has ", tensor.name, " of shape [",
                                       absl::StrJoin(found->shape, ", "), "], but the model's is [",
                                       absl::StrJoin(tensor.shape, ", "), "]"));
  }
  std::ranges::copy(found->Floats(), into.begin());
  return absl::OkStatus();
}

}  // namespace

std::string NameOf(const v1alpha1::Workload& workload) {
  const auto* field = v1alpha1::Workload::descriptor()->FindFieldByNumber(workload.kind_case());
  return field == nullptr ? "" : field->json_name();
}

std::optional<InitialModel> InitialModelOf(const v1alpha1::Workload& workload) {
  const auto of = [&](const auto& kind) -> std::optional<InitialModel> {
    if (!kind.has_initial_model()) return std::nullopt;
    return InitialModel{kind.initial_model().uri(),
                        absl::StrCat("spec.workload.", NameOf(workload), ".initialModel.uri")};
  };
  if (workload.has_language_model()) return of(workload.language_model());
  if (workload.has_regression()) return of(workload.regression());
  if (workload.has_autoencoder()) return of(workload.autoencoder());
  return of(workload.classification());
}

absl::StatusOr<std::string> ReadInitialModel(const InitialModel& initial,
                                             std::span<const engine::Tensor> tensors,
                                             std::span<float> parameters) {
  ASSIGN_OR_RETURN(const data::FileInfo file, data::Inspect(initial.uri, initial.field));
  std::vector<std::byte> content(file.size);
  RETURN_IF_ERROR(data::ReadRange(file, 0, content, initial.field));
  const Source source{file, initial.field};
  const auto model = checkpoint::Decode(content);
  if (!model.ok()) {
    return source.Refused(absl::StrCat("is no safetensors file: ", model.status().message()));
  }
  for (const engine::Tensor& tensor : tensors) {
    RETURN_IF_ERROR(Copy(source, *model, tensor,
                         parameters.subspan(static_cast<std::size_t>(tensor.offset),
                                            static_cast<std::size_t>(tensor.size))));
  }
  return bytes::ToHex(bytes::Sha256Of(content));
}

}  // namespace starling::workload

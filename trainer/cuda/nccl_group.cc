// SPDX-License-Identifier: Apache-2.0
#include "trainer/cuda/nccl_group.h"

#include <cuda_runtime.h>
#include <nccl.h>

#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace starling::cuda {
namespace {

absl::Status ToStatus(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(what, " failed: ", ncclGetErrorString(result), " (",
                                             ncclGetLastError(nullptr), ")"));
}

}  // namespace

struct NcclGroup::State {
  ncclComm_t communicator = nullptr;
  std::atomic<bool> aborted = false;
};

absl::StatusOr<std::string> NcclVersion() {
  int version = 0;
  if (absl::Status status = ToStatus(ncclGetVersion(&version), "asking NCCL for its version");
      !status.ok()) {
    return status;
  }
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusOr<std::string> NewGroupKey() {
  ncclUniqueId id;
  if (absl::Status status = ToStatus(ncclGetUniqueId(&id), "making a key for an NCCL group");
      !status.ok()) {
    return status;
  }
  return std::string(id.internal, sizeof id.internal);
}

absl::StatusOr<std::unique_ptr<NcclGroup>> NcclGroup::Join(const std::string& key, int rank,
                                                           int size) {
  ncclUniqueId id;
  if (key.size() != sizeof id.internal) {
    return absl::InvalidArgumentError(absl::StrCat("an NCCL group's key has ", sizeof id.internal,
                                                   " bytes, not ", key.size(),
                                                   "; take it from NewGroupKey"));
  }
  std::memcpy(id.internal, key.data(), key.size());
  auto state = std::make_unique<State>();
  if (absl::Status status =
          ToStatus(ncclCommInitRank(&state->communicator, size, id, rank), "joining an NCCL group");
      !status.ok()) {
    return status;
  }
  return std::unique_ptr<NcclGroup>(new NcclGroup(std::move(state)));
}

NcclGroup::NcclGroup(std::unique_ptr<State> state) : state_(std::move(state)) {}

NcclGroup::~NcclGroup() {
  if (!state_->aborted.exchange(true)) ncclCommDestroy(state_->communicator);
}

absl::Status NcclGroup::AllReduceSum(std::span<float> buffer, Stream stream) {
  return ToStatus(ncclAllReduce(buffer.data(), buffer.data(), buffer.size(), ncclFloat, ncclSum,
                                state_->communicator, static_cast<cudaStream_t>(stream)),
                  "summing over an NCCL group");
}

void NcclGroup::Abort() {
  if (!state_->aborted.exchange(true)) ncclCommAbort(state_->communicator);
}

}  // namespace starling::cuda

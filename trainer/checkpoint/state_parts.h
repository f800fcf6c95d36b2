// SPDX-License-Identifier: Apache-2.0
// The registry of what a training state consists of: named, typed memory. Copying a state to a
// member that joins, saving it in a checkpoint and restoring it are loops over this registry, and
// none of them knows what a part means.
//
//   parts.Add("optimizer/momentum/fc1.weight", {300, 784}, std::span(momentum));  // floats
//
// To add a part: whoever owns the memory registers it once, before the first view, and nothing else
// changes. Three promises belong to it, and copies, digests and checkpoints rely on them:
// - The memory stays where it is for as long as the registry lives.
// - Name, type and shape follow from the job alone, so they are the same at every member. The order
//   of registration is the same too: copies are sent in that order.
// - The bytes change only when a step is applied or a state comes, never while one is computed or
//   reduced, because a step whose view breaks is dropped and computed again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/bytes/zero_pages.h"
#include "trainer/checkpoint/checkpoint_store.h"
#include "trainer/checkpoint/safetensors.h"

namespace starling::checkpoint {

// Whose bytes a part holds.
enum class Scope {
  // After the same step every member holds equal bytes. A joiner receives them; they count in the
  // digest that holders of a state are compared by.
  kReplicated,
  // Each member has its own, such as the error that its compression has left. A joiner starts with
  // zeros. A checkpoint holds those of the member that wrote it, and the first member of the view
  // that restores it gets them; the others start with zeros, so that nothing is counted twice.
  kOwn,
};

struct StatePart {
  std::string name;  // as a tensor's: 1 to 512 printable ASCII characters; unique
  DType type = DType::kU8;
  std::vector<std::int64_t> shape;
  std::span<std::byte> data;  // as many bytes as type and shape say
  Scope scope = Scope::kReplicated;
};

// Confined to one thread. Movable; a moved registry still points to the same memory.
class StateParts {
 public:
  StateParts() = default;
  StateParts(StateParts&&) = default;
  StateParts& operator=(StateParts&&) = default;

  // A name given twice, or bytes that do not fit the shape, end the process: the program is wrong.
  void Add(StatePart part);
  // The same of values whose type says what they are. Single bytes are kU8.
  template <typename T>
  void Add(std::string name, std::vector<std::int64_t> shape, std::span<T> values,
           Scope scope = Scope::kReplicated) {
    Add({std::move(name), TypeOf<T>(), std::move(shape), std::as_writable_bytes(values), scope});
  }
  // One number: shape {}.
  template <typename T>
  void AddScalar(std::string name, T& value) {
    Add(std::move(name), {}, std::span(&value, 1));
  }

  const std::vector<StatePart>& parts() const { return parts_; }

  // The bytes of all replicated parts, in the order of registration: what a joiner is sent.
  std::vector<std::span<std::byte>> Replicated() const;

  // All parts as tensors of a checkpoint, pointing to the parts' memory.
  std::vector<TensorView> Views() const;

  // The same parts over memory of their own, filled with zeros: a state is received or read into
  // it, and adopted when it is whole.
  StateParts NewStaging() const;
  // The bytes of `staging`, which NewStaging or Read made, become the bytes of this.
  void Adopt(const StateParts& staging);

  // What `checkpoint` holds; parts of scope kOwn only if `own`. FAILED_PRECONDITION, with the
  // part's name, if one is missing, unknown here, or of another type or shape.
  absl::StatusOr<StateParts> Read(const LoadedCheckpoint& checkpoint, bool own) const;

 private:
  template <typename T>
  static constexpr DType TypeOf() {
    if constexpr (std::is_same_v<T, float>) {
      return DType::kF32;
    } else if constexpr (std::is_same_v<T, double>) {
      return DType::kF64;
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      return DType::kI64;
    } else if constexpr (std::is_same_v<T, std::int32_t>) {
      return DType::kI32;
    } else {
      static_assert(std::is_same_v<T, std::byte>, "give another type as a StatePart");
      return DType::kU8;
    }
  }

  std::vector<StatePart> parts_;
  bytes::ZeroPages memory_;  // of a staging
};

}  // namespace starling::checkpoint

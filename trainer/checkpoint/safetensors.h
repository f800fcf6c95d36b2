// SPDX-License-Identifier: Apache-2.0
// The safetensors format: named tensors in one file, no code in it.
//
// A little-endian 64-bit length, a JSON header of that length, then the tensors' bytes. The reader
// is strict: it believes nothing that the file's size does not bear out. Tensors must be named
// once, lie one after another without gap or overlap, fill the file, and have as many bytes as
// their shape says. The writer sorts the names, so that equal tensors give equal files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/buffer/buffer.h"

namespace starling::checkpoint {

using buffer::DType;

// A tensor that lives elsewhere.
struct TensorView {
  std::string name;  // 1 to 512 printable ASCII characters, not "__metadata__"
  DType type = DType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;

  // `data` as floats (type kF32) or 64-bit integers (type kI64); empty for any other type.
  std::span<const float> Floats() const;
  std::span<const std::int64_t> Integers() const;
};

TensorView MakeView(std::string name, std::vector<std::int64_t> shape,
                    std::span<const float> values);
TensorView MakeView(std::string name, std::vector<std::int64_t> shape,
                    std::span<const std::int64_t> values);

using Metadata = std::map<std::string, std::string>;

// The file's beginning, up to the first tensor's bytes, and the order in which the tensors follow.
struct Layout {
  std::string header;
  std::vector<std::size_t> order;  // indices into the tensors
};

// INVALID_ARGUMENT on a bad or double name, or bytes that do not fit the shape.
absl::StatusOr<Layout> LayOut(std::span<const TensorView> tensors, const Metadata& metadata);

// The whole file.
absl::StatusOr<std::string> Encode(std::span<const TensorView> tensors, const Metadata& metadata);

// What a file holds: the views point into it.
struct Decoded {
  std::vector<TensorView> tensors;  // sorted by name
  Metadata metadata;

  // Null when there is none of that name.
  const TensorView* Find(std::string_view name) const;
};

// DATA_LOSS with what is wrong. `file` must be aligned to 8 bytes, as what `new` gives is.
absl::StatusOr<Decoded> Decode(std::span<const std::byte> file);

}  // namespace starling::checkpoint

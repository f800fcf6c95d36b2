// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"

namespace starling::checkpoint {
namespace {

constexpr std::size_t kLengthBytes = 8;
constexpr std::size_t kHeaderLimit = 100'000'000;
constexpr std::size_t kNameLimit = 512;
constexpr std::size_t kAlignment = 8;
constexpr char kMetadataKey[] = "__metadata__";

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kNameLimit && name != kMetadataKey &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

// Bytes of a tensor of that shape; nothing when that is no number of bytes that could exist.
std::optional<std::size_t> BytesOf(DType type, const std::vector<std::int64_t>& shape) {
  std::size_t bytes = SizeOf(type);
  for (const std::int64_t side : shape) {
    if (side < 0) return std::nullopt;
    const auto factor = static_cast<std::size_t>(side);
    if (factor != 0 && bytes > std::numeric_limits<std::int64_t>::max() / factor) {
      return std::nullopt;
    }
    bytes *= factor;
  }
  return bytes;
}

absl::Status CorruptTensors(std::string_view what) {
  return absl::DataLossError(
      absl::StrCat("not a whole safetensors file: ", absl::string_view(what.data(), what.size())));
}

std::optional<std::size_t> ToSize(const nlohmann::json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  return value.get<std::size_t>();
}

// One entry of the header, its bytes within `data`.
absl::StatusOr<TensorView> ReadEntry(const std::string& name, const nlohmann::json& entry,
                                     std::span<const std::byte> data) {
  const auto wrong = [&](std::string_view what) {
    return CorruptTensors(absl::StrCat("tensor \"", name.substr(0, kNameLimit), "\" ",
                                       absl::string_view(what.data(), what.size())));
  };
  if (!IsName(name)) return CorruptTensors("a tensor's name is not 1 to 512 printable characters");
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets")) {
    return wrong("needs dtype, shape and data_offsets, and nothing else");
  }
  const auto& type_name = entry["dtype"];
  const auto& shape = entry["shape"];
  const auto& offsets = entry["data_offsets"];
  const auto type = type_name.is_string()
                        ? buffer::ParseDType(type_name.get_ref<const std::string&>())
                        : std::nullopt;
  if (!type.has_value()) return wrong("has an unknown dtype");
  TensorView tensor{.name = name, .type = *type, .shape = {}, .data = {}};
  if (!shape.is_array()) return wrong("has no list as its shape");
  for (const auto& side : shape) {
    const auto size = ToSize(side);
    if (!size.has_value() || *size > std::numeric_limits<std::int64_t>::max()) {
      return wrong("has a shape that is none");
    }
    tensor.shape.push_back(static_cast<std::int64_t>(*size));
  }
  if (!offsets.is_array() || offsets.size() != 2) return wrong("needs two data_offsets");
  const auto begin = ToSize(offsets[0]);
  const auto end = ToSize(offsets[1]);
  if (!begin.has_value() || !end.has_value() || *begin > *end || *end > data.size()) {
    return wrong("lies beyond the end of the file");
  }
  if (BytesOf(tensor.type, tensor.shape) != *end - *begin) {
    return wrong("has not the bytes that its shape needs");
  }
  if (*begin % SizeOf(tensor.type) != 0) return wrong("is not aligned to its type");
  tensor.data = data.subspan(*begin, *end - *begin);
  return tensor;
}

absl::StatusOr<Metadata> ReadMetadata(const nlohmann::json& entry) {
  if (!entry.is_object()) return CorruptTensors("its metadata is not an object");
  Metadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) return CorruptTensors("its metadata holds something else than texts");
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Every byte of `data` belongs to exactly one tensor.
absl::Status CheckTiling(const std::vector<TensorView>& tensors, std::span<const std::byte> data) {
  std::vector<std::span<const std::byte>> pieces;
  pieces.reserve(tensors.size());
  for (const TensorView& tensor : tensors) pieces.push_back(tensor.data);
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data(), a.size()) < std::pair(b.data(), b.size());
  });
  const std::byte* end = data.data();
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;
    if (piece.data() != end) return CorruptTensors("tensors overlap or leave a gap");
    end = piece.data() + piece.size();
  }
  if (end != data.data() + data.size())
    return CorruptTensors("there are bytes behind the last tensor");
  return absl::OkStatus();
}

void AppendLength(std::string& target, std::size_t length) {
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    target.push_back(static_cast<char>(length >> (8 * i) & 0xff));
  }
}

}  // namespace

std::span<const float> TensorView::Floats() const {
  if (type != DType::kF32) return {};
  return {reinterpret_cast<const float*>(data.data()), data.size() / sizeof(float)};
}

std::span<const std::int64_t> TensorView::Integers() const {
  if (type != DType::kI64) return {};
  return {reinterpret_cast<const std::int64_t*>(data.data()), data.size() / sizeof(std::int64_t)};
}

TensorView MakeView(std::string name, std::vector<std::int64_t> shape,
                    std::span<const float> values) {
  return {std::move(name), DType::kF32, std::move(shape), std::as_bytes(values)};
}

TensorView MakeView(std::string name, std::vector<std::int64_t> shape,
                    std::span<const std::int64_t> values) {
  return {std::move(name), DType::kI64, std::move(shape), std::as_bytes(values)};
}

absl::StatusOr<Layout> LayOut(std::span<const TensorView> tensors, const Metadata& metadata) {
  Layout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), 0);
  // Wide types first, so that each lies aligned behind the one before it.
  std::sort(layout.order.begin(), layout.order.end(), [&](std::size_t a, std::size_t b) {
    const auto key = [&](std::size_t i) {
      return std::pair(-static_cast<int>(SizeOf(tensors[i].type)),
                       std::string_view(tensors[i].name));
    };
    return key(a) < key(b);
  });
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header[kMetadataKey] = metadata;
  std::size_t offset = 0;
  for (const std::size_t index : layout.order) {
    const TensorView& tensor = tensors[index];
    if (!IsName(tensor.name) || header.contains(tensor.name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor name \"", tensor.name, "\" is empty, too long, not printable, or given twice"));
    }
    if (BytesOf(tensor.type, tensor.shape) != tensor.data.size()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" has ",
                                                     tensor.data.size(),
                                                     " bytes, which do not fit its shape"));
    }
    header[tensor.name] = {{"dtype", NameOf(tensor.type)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.data.size()}}};
    offset += tensor.data.size();
  }
  std::string text = json::Dump(header);
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  AppendLength(layout.header, text.size());
  layout.header += text;
  return layout;
}

absl::StatusOr<std::string> Encode(std::span<const TensorView> tensors, const Metadata& metadata) {
  ASSIGN_OR_RETURN(Layout layout, LayOut(tensors, metadata));
  std::string file = std::move(layout.header);
  for (const std::size_t index : layout.order) {
    const auto& data = tensors[index].data;
    file.append(reinterpret_cast<const char*>(data.data()), data.size());
  }
  return file;
}

const TensorView* Decoded::Find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const TensorView& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

absl::StatusOr<Decoded> Decode(std::span<const std::byte> file) {
  if (file.size() < kLengthBytes) return CorruptTensors("it is shorter than its first field");
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  if (length > file.size() - kLengthBytes || length % kAlignment != 0) {
    return CorruptTensors("its header does not fit");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes,
                              static_cast<std::size_t>(length));
  const json::Limits limits{.bytes = kHeaderLimit, .depth = 4, .nodes = text.size()};
  const auto header = json::Parse(text, limits);
  if (!header.ok()) return CorruptTensors(absl::StrCat("its header: ", header.status().message()));
  if (!header->is_object() || text[0] != '{') return CorruptTensors("its header is not an object");
  const auto data = file.subspan(kLengthBytes + static_cast<std::size_t>(length));
  Decoded decoded;
  for (const auto& [name, entry] : header->items()) {
    if (name == kMetadataKey) {
      ASSIGN_OR_RETURN(decoded.metadata, ReadMetadata(entry));
    } else {
      ASSIGN_OR_RETURN(TensorView tensor, ReadEntry(name, entry, data));
      decoded.tensors.push_back(std::move(tensor));
    }
  }
  RETURN_IF_ERROR(CheckTiling(decoded.tensors, data));
  return decoded;
}

}  // namespace starling::checkpoint

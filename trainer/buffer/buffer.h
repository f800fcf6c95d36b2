// SPDX-License-Identifier: Apache-2.0
// Memory that knows what it holds: the type of its elements, the device that it lies on, where it
// begins and how many elements there are. This is what crosses the seams of the trainer (exchange,
// codec, parts of the state), so that a seam need not be cut again for 16-bit gradients or for a
// GPU. Behind a seam, kernels and optimizers work on plain spans: As<T>() gives one, or says why
// the memory cannot be seen that way.
//
//   buffer::View gradients(engine.gradients());                      // F32, CPU
//   ASSIGN_OR_RETURN(std::span<float> floats, gradients.As<float>());
//
// A view owns nothing and is copied freely. To add a type: a value of DType, its line in the table
// of buffer.cc, and TypeOf of the C++ type. To add a device: a value of Device, what CheckBuilt
// says of it, and codecs and collectives that take it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace starling::buffer {

enum class DType : std::uint8_t { kBool, kU8, kI8, kI16, kF16, kBF16, kI32, kF32, kI64, kF64 };

std::string_view NameOf(DType type);  // as the safetensors format writes it: "F32"
std::optional<DType> ParseDType(std::string_view name);
std::size_t SizeOf(DType type);  // bytes

// Floats of 16 bits. They are stored and sent, never computed with: see number_format.h.
struct Float16 {
  std::uint16_t bits = 0;
  bool operator==(const Float16&) const = default;
};
struct BFloat16 {
  std::uint16_t bits = 0;
  bool operator==(const BFloat16&) const = default;
};

template <typename T>
inline constexpr DType kTypeOf = [] {
  static_assert(sizeof(T) == 0, "no DType stands for this type");
  return DType::kU8;
}();
template <>
inline constexpr DType kTypeOf<std::uint8_t> = DType::kU8;
template <>
inline constexpr DType kTypeOf<std::int8_t> = DType::kI8;
template <>
inline constexpr DType kTypeOf<Float16> = DType::kF16;
template <>
inline constexpr DType kTypeOf<BFloat16> = DType::kBF16;
template <>
inline constexpr DType kTypeOf<std::int32_t> = DType::kI32;
template <>
inline constexpr DType kTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kTypeOf<std::int64_t> = DType::kI64;
template <>
inline constexpr DType kTypeOf<double> = DType::kF64;

enum class Device : std::uint8_t { kCpu, kCuda };

// UNIMPLEMENTED, with the remedy, for a device that this build has no code for.
absl::Status CheckBuilt(Device device);

// INVALID_ARGUMENT unless memory of `type` at `data` can be seen as `wanted`, whose C++ type needs
// `alignment`; UNIMPLEMENTED for a device that is not built.
absl::Status CheckAccess(DType type, Device device, const void* data, DType wanted,
                         std::size_t alignment);

// Byte is std::byte, or const std::byte for memory that is only read.
template <typename Byte>
class BasicView {
 public:
  template <typename T>
  using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
  using Void = Element<void>;

  // No elements, of type F32.
  BasicView() = default;
  // `count` elements of `type`; `data` is an address of `device`.
  BasicView(DType type, Device device, Void* data, std::size_t count)
      : type_(type), device_(device), data_(static_cast<Byte*>(data)), count_(count) {}
  // What a span, a vector or an array holds, in this process's memory.
  template <typename Range>
  requires std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
      std::is_convertible_v<decltype(std::ranges::data(std::declval<Range&>())), Void*>
      BasicView(Range&& range)  // NOLINT(google-explicit-constructor)
      : BasicView(kTypeOf<std::remove_cv_t<std::ranges::range_value_t<Range>>>, Device::kCpu,
                  std::ranges::data(range), std::ranges::size(range)) {}
  // A view to write through serves where one to read is wanted.
  template <typename Other>
  requires(std::is_const_v<Byte> && !std::is_const_v<Other>)
      BasicView(BasicView<Other> other)  // NOLINT(google-explicit-constructor)
      : BasicView(other.type(), other.device(), other.data(), other.size()) {}

  DType type() const { return type_; }
  Device device() const { return device_; }
  Void* data() const { return data_; }
  std::size_t size() const { return count_; }  // elements
  bool empty() const { return count_ == 0; }
  std::size_t size_bytes() const { return count_ * SizeOf(type_); }

  // The elements, as what they are. See CheckAccess.
  template <typename T>
  absl::StatusOr<std::span<Element<T>>> As() const {
    absl::Status allowed = CheckAccess(type_, device_, data_, kTypeOf<T>, alignof(T));
    if (!allowed.ok()) return allowed;
    return std::span<Element<T>>(reinterpret_cast<Element<T>*>(data_), count_);
  }
  // The bytes of a view of any type; UNIMPLEMENTED for a device that is not built.
  absl::StatusOr<std::span<Byte>> Bytes() const {
    absl::Status built = CheckBuilt(device_);
    if (!built.ok()) return built;
    return std::span<Byte>(data_, size_bytes());
  }

 private:
  DType type_ = DType::kF32;
  Device device_ = Device::kCpu;
  Byte* data_ = nullptr;
  std::size_t count_ = 0;
};

using View = BasicView<std::byte>;
using ConstView = BasicView<const std::byte>;

}  // namespace starling::buffer

// SPDX-License-Identifier: Apache-2.0
#include "trainer/collectives/reduce_op.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "trainer/buffer/number_format.h"
#include "trainer/kernels/span_math.h"

namespace starling::collectives {
namespace {

using buffer::BFloat16;
using buffer::DType;
using buffer::Float16;

struct Sum {
  template <typename T>
  static T Of(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Bits>(static_cast<Bits>(x) + static_cast<Bits>(y)));
    } else {
      return x + y;
    }
  }
};
struct Product {
  template <typename T>
  static T Of(T x, T y) {
    if constexpr (std::is_integral_v<T>) {
      // Wide enough that no promoted product is a signed overflow.
      return static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
    } else {
      return x * y;
    }
  }
};
struct Minimum {
  template <typename T>
  static T Of(T x, T y) {
    return x < y ? x : y;
  }
};
struct Maximum {
  template <typename T>
  static T Of(T x, T y) {
    return x > y ? x : y;
  }
};

template <typename T, typename Op>
void CombineOf(const void* x, void* y, std::size_t count) {
  const T* const from = static_cast<const T*>(x);
  T* const to = static_cast<T*>(y);
  if constexpr (std::is_same_v<T, float> && std::is_same_v<Op, Sum>) {
    kernels::Add(std::span(from, count), std::span(to, count));
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = Op::template Of<T>(from[i], to[i]);
  }
}

// In blocks that stay in the first-level cache.
template <typename T, auto decode, auto encode, typename Op>
void CombineHalves(const void* x, void* y, std::size_t count) {
  constexpr std::size_t kBlock = 1024;
  std::array<float, kBlock> from, to;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::size_t size = std::min(kBlock, count - at);
    const std::span<T> result(static_cast<T*>(y) + at, size);
    decode(std::span(static_cast<const T*>(x) + at, size), std::span(from).first(size));
    decode(result, std::span(to).first(size));
    CombineOf<float, Op>(from.data(), to.data(), size);
    encode(std::span<const float>(to).first(size), result);
  }
}

template <typename T>
void DivideOf(void* y, std::size_t count, int divisor) {
  T* const to = static_cast<T*>(y);
  // In 64 bits: more ranks than an int8 counts would divide by something else.
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, T>;
  const auto by = static_cast<Wide>(divisor);
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<T>(static_cast<Wide>(to[i]) / by);
}

template <typename T, auto decode, auto encode>
void DivideHalves(void* y, std::size_t count, int divisor) {
  constexpr std::size_t kBlock = 1024;
  std::array<float, kBlock> wide;
  for (std::size_t at = 0; at < count; at += kBlock) {
    const std::span<T> part(static_cast<T*>(y) + at, std::min(kBlock, count - at));
    decode(part, std::span(wide).first(part.size()));
    DivideOf<float>(wide.data(), part.size(), divisor);
    encode(std::span<const float>(wide).first(part.size()), part);
  }
}

// What one type has: by ReduceOp, the average's being the sum's.
struct Column {
  DType type;
  std::array<Combine, 5> combine;
  Divide divide;
};

template <typename T>
constexpr Column Plain() {
  return {buffer::kTypeOf<T>,
          {CombineOf<T, Sum>, CombineOf<T, Minimum>, CombineOf<T, Maximum>, CombineOf<T, Product>,
           CombineOf<T, Sum>},
          DivideOf<T>};
}
template <typename T, auto decode, auto encode>
constexpr Column Halves() {
  return {buffer::kTypeOf<T>,
          {CombineHalves<T, decode, encode, Sum>, CombineHalves<T, decode, encode, Minimum>,
           CombineHalves<T, decode, encode, Maximum>, CombineHalves<T, decode, encode, Product>,
           CombineHalves<T, decode, encode, Sum>},
          DivideHalves<T, decode, encode>};
}

constexpr Column kColumns[] = {
    Plain<float>(),
    Plain<double>(),
    Plain<std::int8_t>(),
    Plain<std::int32_t>(),
    Plain<std::int64_t>(),
    Halves<Float16, buffer::DecodeFloat16, buffer::EncodeFloat16>(),
    Halves<BFloat16, buffer::DecodeBFloat16, buffer::EncodeBFloat16>(),
};

}  // namespace

absl::StatusOr<Reducer> ReducerOf(ReduceOp op, buffer::DType type) {
  for (const Column& column : kColumns) {
    if (column.type != type) continue;
    return Reducer{column.combine[static_cast<std::size_t>(op)],
                   op == ReduceOp::kAverage ? column.divide : nullptr};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("elements of type ", std::string(buffer::NameOf(type)),
                   " cannot be reduced: F32, F64, F16, BF16, I8, I32 and I64 can"));
}

}  // namespace starling::collectives

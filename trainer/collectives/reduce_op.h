// SPDX-License-Identifier: Apache-2.0
// What a reduction does to two arrays of one type: a table of operation and element.
//
// Floats of 16 bits are computed in float32 and rounded after each operation; integers wrap around.
// To add an operation: a value of ReduceOp and its line in the table of reduce_op.cc; to add a
// type, its column there.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "trainer/buffer/buffer.h"

namespace starling::collectives {

// kAverage is the sum, divided by the number of ranks at the end; of integers, towards zero.
enum class ReduceOp { kSum, kMinimum, kMaximum, kProduct, kAverage };

// y = y op x, for `count` elements. Of a NaN and a number, the minimum and maximum are unspecified,
// but the same at every rank.
using Combine = void (*)(const void* x, void* y, std::size_t count);
// y = y / divisor
using Divide = void (*)(void* y, std::size_t count, int divisor);

struct Reducer {
  Combine combine = nullptr;
  Divide divide = nullptr;  // null but for the average
};

// INVALID_ARGUMENT for a type that is not summed up: only float32, float64, float16, bfloat16,
// int8, int32 and int64 are.
absl::StatusOr<Reducer> ReducerOf(ReduceOp op, buffer::DType type);

}  // namespace starling::collectives

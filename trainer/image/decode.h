// SPDX-License-Identifier: Apache-2.0
// JPEG and PNG files as pixels, by libjpeg-turbo and libpng.
//
// A file is whatever its first bytes say, not its name. It may come from anybody: sizes are looked
// at before memory is set aside, damage is an error and never a picture that is half grey, and what
// is promised but cannot be (a scan repeated a thousand times, a picture of a billion pixels) is
// refused. To add a format: its functions in decode.cc, and a row of kFormats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

namespace starling::image {

inline constexpr std::int64_t kMaxSide = 65500;                       // what JPEG can have
inline constexpr std::int64_t kMaxPixels = std::int64_t{1} << 26;     // 192 MiB in colour
inline constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;  // of one image

struct Size {
  std::int64_t width = 0;
  std::int64_t height = 0;
  bool operator==(const Size&) const = default;
};

// Rows from the top, pixels from the left, channels within a pixel: grey, or red, green and blue.
struct Image {
  Size size;
  int channels = 0;
  std::vector<std::uint8_t> pixels;
};

// From the file's head alone. INVALID_ARGUMENT: what it is instead of an image that can be read, as
// a message goes on after the file's name.
absl::StatusOr<Size> SizeOf(std::span<const std::byte> file);

// All of it, in `channels` channels: 1 or 3. A JPEG may be made smaller on the way, by 1/2, 1/4 or
// 1/8, which costs less than decoding all of it: as long as both sides are left with at least
// `least` of their pixels (a share, such as 0.3). What is transparent is black. Errors as above.
absl::StatusOr<Image> Decode(std::span<const std::byte> file, int channels, double least);

}  // namespace starling::image

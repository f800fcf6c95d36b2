// SPDX-License-Identifier: Apache-2.0
// A part of an image at another size.
//
// The filter is a triangle as wide as an output pixel is in the image, as that of Pillow's BILINEAR
// and of torchvision's Resize, in whole numbers: equal images give equal bytes on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "trainer/image/decode.h"

namespace starling::image {

// In pixels of an image, from its upper left corner.
struct Box {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
  bool operator==(const Box&) const = default;
};

// Fills `into` with `box` of `image` at the size `to`: one channel behind another, each row by row
// (`channels * to.height * to.width` bytes). The box lies within the image, and no side is empty.
void Resample(const Image& image, const Box& box, Size to, std::span<std::uint8_t> into);

}  // namespace starling::image

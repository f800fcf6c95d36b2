// SPDX-License-Identifier: Apache-2.0
// Images for tests: drawn, and written as the files that programs write.
#pragma once

#include <png.h>
#include <turbojpeg.h>

#include <cstdint>
#include <span>
#include <string>

#include "common/status/check.h"
#include "trainer/image/decode.h"

namespace starling::image {

// A smooth picture, which survives JPEG nearly unchanged; another one for each `seed`.
inline Image Drawn(Size size, int channels, unsigned seed = 0) {
  Image image{.size = size, .channels = channels, .pixels = {}};
  for (std::int64_t y = 0; y < size.height; ++y) {
    for (std::int64_t x = 0; x < size.width; ++x) {
      for (int channel = 0; channel < channels; ++channel) {
        const std::int64_t along = channel == 0 ? x * 255 / size.width : y * 255 / size.height;
        image.pixels.push_back(
            static_cast<std::uint8_t>((along + 40 * channel + 29 * seed) / 2 % 256));
      }
    }
  }
  return image;
}

inline std::string JpegOf(const Image& image, int quality = 95, bool progressive = false) {
  const tjhandle turbo = tjInitCompress();
  unsigned char* file = nullptr;
  unsigned long size = 0;
  const int format = image.channels == 1 ? TJPF_GRAY : image.channels == 3 ? TJPF_RGB : TJPF_CMYK;
  const int sampling = image.channels == 1 ? TJSAMP_GRAY : TJSAMP_444;
  STARLING_CHECK(tjCompress2(turbo, image.pixels.data(), static_cast<int>(image.size.width), 0,
                             static_cast<int>(image.size.height), format, &file, &size, sampling,
                             quality, progressive ? TJFLAG_PROGRESSIVE : 0) == 0,
                 "the test's picture can be written");
  std::string content(reinterpret_cast<const char*>(file), size);
  tjFree(file);
  tjDestroy(turbo);
  return content;
}

// With four channels, the last says how opaque a pixel is.
inline std::string PngOf(const Image& image) {
  png_image head = {};
  head.version = PNG_IMAGE_VERSION;
  head.width = static_cast<png_uint_32>(image.size.width);
  head.height = static_cast<png_uint_32>(image.size.height);
  head.format = image.channels == 1   ? PNG_FORMAT_GRAY
                : image.channels == 3 ? PNG_FORMAT_RGB
                                      : PNG_FORMAT_RGBA;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(head);
  std::string content(size, '\0');
  STARLING_CHECK(png_image_write_to_memory(&head, content.data(), &size, 0, image.pixels.data(), 0,
                                           nullptr) != 0,
                 "the test's picture can be written");
  content.resize(size);
  return content;
}

inline std::span<const std::byte> BytesOf(const std::string& file) {
  return std::as_bytes(std::span(file));
}

}  // namespace starling::image

// SPDX-License-Identifier: Apache-2.0
#include "trainer/image/decode.h"

#include <png.h>
#include <turbojpeg.h>

#include <cstring>
#include <memory>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::image {
namespace {

using Bytes = std::span<const std::byte>;

absl::Status Refused(std::string_view what) {
  return absl::InvalidArgumentError(absl::string_view(what.data(), what.size()));
}

absl::Status Damaged(const char* format, const char* why) {
  return Refused(absl::StrCat("is a damaged ", format, " file (", why, ")"));
}

// Before any memory is set aside for it.
absl::StatusOr<Size> Checked(std::int64_t width, std::int64_t height) {
  if (width < 1 || height < 1 || width > kMaxSide || height > kMaxSide ||
      width > kMaxPixels / height) {
    return Refused(absl::StrCat("promises an image of ", width, " by ", height,
                                " pixels, more than the ", kMaxPixels,
                                " that are decoded; make it smaller"));
  }
  return Size{width, height};
}

// ---- JPEG

using Turbo = std::unique_ptr<std::remove_pointer_t<tjhandle>, int (*)(tjhandle)>;

Turbo NewTurbo() { return {tjInitDecompress(), tjDestroy}; }

const unsigned char* Octets(Bytes file) {
  return reinterpret_cast<const unsigned char*>(file.data());
}

struct JpegHead {
  Size size;
  bool inks = false;  // cyan, magenta, yellow and black
};

absl::StatusOr<JpegHead> ReadHead(const Turbo& turbo, Bytes file) {
  int width = 0;
  int height = 0;
  int sampling = 0;
  int colours = 0;
  if (turbo == nullptr) return absl::ResourceExhaustedError("cannot be read: no memory");
  if (tjDecompressHeader3(turbo.get(), Octets(file), file.size(), &width, &height, &sampling,
                          &colours) != 0) {
    return Damaged("JPEG", tjGetErrorStr2(turbo.get()));
  }
  if (width < 1 || height < 1) return Damaged("JPEG", "it holds no image");
  JpegHead head;
  ASSIGN_OR_RETURN(head.size, Checked(width, height));
  head.inks = colours == TJCS_CMYK || colours == TJCS_YCCK;
  return head;
}

absl::StatusOr<Size> JpegSize(Bytes file) {
  ASSIGN_OR_RETURN(const JpegHead head, ReadHead(NewTurbo(), file));
  return head.size;
}

// Inks as Adobe's programs write them: 255 is no ink.
std::vector<std::uint8_t> WithoutInks(std::span<const std::uint8_t> inks, int channels) {
  std::vector<std::uint8_t> pixels;
  pixels.reserve(inks.size() / 4 * static_cast<std::size_t>(channels));
  for (std::size_t i = 0; i + 3 < inks.size(); i += 4) {
    const unsigned black = inks[i + 3];
    const auto colour = [&](std::size_t channel) { return inks[i + channel] * black / 255U; };
    if (channels == 3) {
      for (std::size_t k = 0; k < 3; ++k) pixels.push_back(static_cast<std::uint8_t>(colour(k)));
      continue;
    }
    // The weights of luma (ITU-R BT.601).
    pixels.push_back(static_cast<std::uint8_t>(
        (299 * colour(0) + 587 * colour(1) + 114 * colour(2) + 500) / 1000));
  }
  return pixels;
}

int ShrinkOf(double least) {
  for (const int shrink : {8, 4, 2}) {
    if (least * shrink <= 1) return shrink;
  }
  return 1;
}

absl::StatusOr<Image> DecodeJpeg(Bytes file, int channels, double least) {
  const Turbo turbo = NewTurbo();
  ASSIGN_OR_RETURN(const JpegHead head, ReadHead(turbo, file));
  const tjscalingfactor scale = {1, ShrinkOf(least)};
  const int width = TJSCALED(static_cast<int>(head.size.width), scale);
  const int height = TJSCALED(static_cast<int>(head.size.height), scale);
  const int format = head.inks ? TJPF_CMYK : channels == 3 ? TJPF_RGB : TJPF_GRAY;
  Image image{.size = {width, height}, .channels = channels, .pixels = {}};
  image.pixels.resize(static_cast<std::size_t>(width) * static_cast<std::size_t>(height) *
                      static_cast<std::size_t>(tjPixelSize[format]));
  // A warning is damage that the library has filled with grey; a file of endless scans is refused.
  constexpr int kFlags = TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS | TJFLAG_ACCURATEDCT;
  if (tjDecompress2(turbo.get(), Octets(file), file.size(), image.pixels.data(), width, 0, height,
                    format, kFlags) != 0) {
    return Damaged("JPEG", tjGetErrorStr2(turbo.get()));
  }
  if (head.inks) image.pixels = WithoutInks(image.pixels, channels);
  return image;
}

// ---- PNG

// libpng's own reader of whole images. Confined to a function.
class PngReader {
 public:
  PngReader() { image_.version = PNG_IMAGE_VERSION; }
  ~PngReader() { png_image_free(&image_); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  absl::StatusOr<Size> Begin(Bytes file) {
    if (png_image_begin_read_from_memory(&image_, file.data(), file.size()) == 0) {
      return Damaged("PNG", image_.message);
    }
    return Checked(image_.width, image_.height);
  }

  absl::StatusOr<Image> Read(Size size, int channels) {
    // 16 bits without a word about their meaning are taken for what 8 bits would be.
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
    image_.format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    // What is transparent shows this background.
    const png_color black = {};
    Image image{.size = size, .channels = channels, .pixels = {}};
    image.pixels.resize(PNG_IMAGE_SIZE(image_));
    if (png_image_finish_read(&image_, &black, image.pixels.data(), 0, nullptr) == 0 ||
        PNG_IMAGE_FAILED(image_)) {
      return Damaged("PNG", image_.message);
    }
    return image;
  }

 private:
  png_image image_ = {};
};

absl::StatusOr<Size> PngSize(Bytes file) { return PngReader().Begin(file); }

absl::StatusOr<Image> DecodePng(Bytes file, int channels, double /*least*/) {
  PngReader reader;
  ASSIGN_OR_RETURN(const Size size, reader.Begin(file));
  return reader.Read(size, channels);
}

struct Format {
  std::string_view magic;
  absl::StatusOr<Size> (*size)(Bytes file);
  absl::StatusOr<Image> (*decode)(Bytes file, int channels, double least);
};
constexpr Format kFormats[] = {
    {"\xff\xd8\xff", JpegSize, DecodeJpeg},
    {"\x89PNG\r\n\x1a\n", PngSize, DecodePng},
};

absl::StatusOr<const Format*> FormatOf(Bytes file) {
  if (file.empty()) return Refused("is empty");
  if (file.size() > kMaxFileBytes) {
    return Refused(
        absl::StrCat("has ", file.size(), " bytes, more than ", kMaxFileBytes, " of an image"));
  }
  for (const Format& format : kFormats) {
    if (file.size() >= format.magic.size() &&
        std::memcmp(file.data(), format.magic.data(), format.magic.size()) == 0) {
      return &format;
    }
  }
  return Refused("is neither a JPEG nor a PNG file");
}

}  // namespace

absl::StatusOr<Size> SizeOf(std::span<const std::byte> file) {
  ASSIGN_OR_RETURN(const Format* format, FormatOf(file));
  return format->size(file);
}

absl::StatusOr<Image> Decode(std::span<const std::byte> file, int channels, double least) {
  ASSIGN_OR_RETURN(const Format* format, FormatOf(file));
  return format->decode(file, channels, least);
}

}  // namespace starling::image

// SPDX-License-Identifier: Apache-2.0
// For bench/images.py: writes a folder of images, or tells how fast one core makes samples of them.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/random/philox.h"
#include "trainer/image/decode.h"
#include "trainer/image/resample.h"
#include "trainer/testing/test_images.h"

namespace starling {
namespace {

constexpr int kClasses = 10;
constexpr int kChannels = 3;
constexpr int kQuality = 90;

// Waves, whose length and direction are those of the image, under noise as a camera has it: plain
// areas alone are decoded faster than photographs.
image::Image Picture(std::int64_t side, std::int64_t number) {
  constexpr int kNoise = 32;
  const random::Philox dice(static_cast<std::uint64_t>(number), random::Stream::kTest);
  std::uint64_t throws = 0;
  const double across = 2 + static_cast<double>(dice.Below(throws++, 16));
  const double down = 2 + static_cast<double>(dice.Below(throws++, 16));
  image::Image picture{.size = {side, side}, .channels = kChannels, .pixels = {}};
  for (std::int64_t y = 0; y < side; ++y) {
    for (std::int64_t x = 0; x < side; ++x) {
      const double wave =
          std::sin((across * static_cast<double>(x) + down * static_cast<double>(y)) /
                   static_cast<double>(side));
      for (int channel = 0; channel < kChannels; ++channel) {
        const double noise = static_cast<double>(dice.Below(throws++, kNoise));
        picture.pixels.push_back(static_cast<std::uint8_t>(100 + 15 * channel + 60 * wave + noise));
      }
    }
  }
  return picture;
}

int Write(const std::string& folder, std::int64_t count, std::int64_t side) {
  for (int label = 0; label < kClasses; ++label) {
    std::filesystem::create_directories(absl::StrCat(folder, "/", label));
  }
  std::int64_t bytes = 0;
  for (std::int64_t number = 0; number < count; ++number) {
    const std::string file = image::JpegOf(Picture(side, number), kQuality);
    bytes += static_cast<std::int64_t>(file.size());
    std::ofstream(absl::StrCat(folder, "/", number % kClasses, "/", number, ".jpg")) << file;
  }
  std::cout << bytes << "\n";
  return 0;
}

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What a worker's thread does for a sample: reads the file, decodes it, and makes it so large. The
// time is this thread's own, so that a busy machine tells nearly the same.
int Rate(const std::string& folder, std::int64_t side, std::int64_t seconds) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  }
  const image::Size shape = {side, side};
  std::vector<std::uint8_t> sample(static_cast<std::size_t>(kChannels * side * side));
  const double began = ThreadSeconds();
  std::size_t made = 0;
  while (!paths.empty() && ThreadSeconds() - began < static_cast<double>(seconds)) {
    std::ifstream stream(paths[made % paths.size()], std::ios::binary);
    const std::string file{std::istreambuf_iterator<char>(stream), {}};
    const auto whole = image::SizeOf(image::BytesOf(file));
    if (!whole.ok()) {
      std::cerr << paths[made % paths.size()] << " " << whole.status().message() << "\n";
      return 1;
    }
    const double least =
        static_cast<double>(side) / static_cast<double>(std::min(whole->width, whole->height));
    const auto decoded = image::Decode(image::BytesOf(file), kChannels, least);
    if (!decoded.ok()) {
      std::cerr << paths[made % paths.size()] << " " << decoded.status().message() << "\n";
      return 1;
    }
    const image::Box all = {0, 0, static_cast<double>(decoded->size.width),
                            static_cast<double>(decoded->size.height)};
    image::Resample(*decoded, all, shape, sample);
    ++made;
  }
  std::cout << static_cast<double>(made) / (ThreadSeconds() - began) << "\n";
  return made > 0 ? 0 : 1;
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  std::int64_t first = 0;
  std::int64_t second = 0;
  if (argc == 5 && absl::SimpleAtoi(argv[3], &first) && absl::SimpleAtoi(argv[4], &second) &&
      first > 0 && second > 0) {
    if (std::string(argv[1]) == "write") return starling::Write(argv[2], first, second);
    if (std::string(argv[1]) == "rate") return starling::Rate(argv[2], first, second);
  }
  std::cerr << "usage: starling-images-bench write FOLDER COUNT SIDE\n"
               "       starling-images-bench rate FOLDER SIDE SECONDS\n";
  return 2;
}

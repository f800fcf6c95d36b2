// SPDX-License-Identifier: Apache-2.0
// Samples made of images, wherever those lie: read and decoded when their numbers are near, by a
// few threads (read_ahead.h), changed as the job's augmentation says, and kept while there is room.
//
// To add a place where images lie: implement ImageFiles, and let its loader call LoadImages; see
// image_folder.cc and tar_source.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/bytes/bytes.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/bad_records.h"
#include "trainer/data/source.h"
#include "trainer/image/resample.h"

namespace starling::data {

// Files of images by number, each of a class. Thread-safe.
class ImageFiles {
 public:
  virtual ~ImageFiles() = default;

  virtual std::int64_t size() const = 0;
  virtual std::int64_t LabelOf(std::int64_t image) const = 0;
  // For messages: where it lies.
  virtual std::string PathOf(std::int64_t image) const = 0;
  // All of it. Errors begin with the field. INVALID_ARGUMENT: it is itself wrong, and may be passed
  // over; what cannot be had, may not.
  virtual absl::StatusOr<std::vector<std::byte>> Read(std::int64_t image) const = 0;
  // Of names, labels and what else is known without reading them.
  virtual std::string Digest() const = 0;
};

// What one image is made into.
struct ImageSettings {
  std::string field;  // of the job file: spec.dataset.train.imageFolder.uri
  int channels = 3;
  image::Size shape;
  std::uint64_t seed = 1;
  std::optional<v1alpha1::Augmentation> augmentation;  // of a training set
  std::int64_t cache_bytes = std::int64_t{256} << 20;
  int threads = 2;
};

// INVALID_ARGUMENT at `path`.shape.
absl::Status CheckImageShape(const std::vector<std::int64_t>& shape, const std::string& path);

// Those of `source`, a block of the job file that says how images are made into samples.
template <typename Source>
absl::StatusOr<ImageSettings> ImageSettingsOf(const Source& source, const LoadOptions& options,
                                              bool validation) {
  const std::vector<std::int64_t> shape(source.shape().begin(), source.shape().end());
  if (absl::Status status = CheckImageShape(shape, options.path); !status.ok()) return status;
  ImageSettings settings;
  settings.field = options.path + ".uri";
  settings.channels = static_cast<int>(shape[0]);
  settings.shape = {.width = shape[2], .height = shape[1]};
  settings.seed = options.seed;
  const bool changed = !validation && options.dataset != nullptr;
  if (changed && options.dataset->has_augmentation()) {
    settings.augmentation = options.dataset->augmentation();
  }
  if (source.has_cache_bytes()) settings.cache_bytes = source.cache_bytes();
  if (source.has_threads()) settings.threads = static_cast<int>(source.threads());
  return settings;
}

// A set whose samples are these images. `bad`: what becomes of those that cannot be read.
Loaded LoadImages(std::unique_ptr<const ImageFiles> files, ImageSettings settings,
                  std::shared_ptr<BadRecords> bad);

// Images of which nobody has said the classes.
struct LooseImages {
  Loaded loaded;                   // every label is 0
  std::vector<std::string> names;  // by number: what tells one from another where they lie
};

// Many names, in one string: a million of them take a third of what strings would.
// Thread-compatible.
class Names {
 public:
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
  void Add(std::string_view name);
  std::string_view At(std::int64_t number) const;
  // Appends those of `other`.
  void Add(const Names& other);
  void AddTo(bytes::Sha256& digest) const;

 private:
  std::string text_;
  std::vector<std::uint64_t> ends_;
};

}  // namespace starling::data

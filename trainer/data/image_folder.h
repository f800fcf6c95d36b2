// SPDX-License-Identifier: Apache-2.0
// A folder of images with one folder a class, as ImageNet's are laid out, wherever it lies.
//
// A worker holds the files' names and a bounded cache of decoded images; an image is read and
// decoded when its number is near, by a few threads (read_ahead.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/storage/blob_store.h"
#include "trainer/data/source.h"

namespace starling::v1alpha1 {
class ImageFolderSource;
}  // namespace starling::v1alpha1

namespace starling::data {

// The files of a folder by number, sorted by their names. Thread-compatible.
class ImageIndex {
 public:
  std::int64_t size() const { return static_cast<std::int64_t>(labels_.size()); }
  // Relative to the folder, such as cat/17.jpg.
  std::string_view NameOf(std::int64_t image) const;
  std::int64_t LabelOf(std::int64_t image) const {
    return labels_[static_cast<std::size_t>(image)];
  }
  // By number.
  const std::vector<std::string>& classes() const { return classes_; }
  // Of names and labels.
  std::string Digest() const;

  // Of what a store lists, sorted. `classes`: those of the training set, when this is the
  // validation set; empty: each folder is one. INVALID_ARGUMENT, as a message goes on after the
  // folder's name.
  static absl::StatusOr<ImageIndex> Of(const std::vector<std::string>& names,
                                       const std::vector<std::string>& classes);

 private:
  // All names in one string: a million of them take a third of what strings would.
  std::string names_;
  std::vector<std::uint64_t> ends_;
  std::vector<std::int32_t> labels_;
  std::vector<std::string> classes_;
};

// The set that `source` names, with a reader; that of a training set changes images as the job's
// `dataset` says. Files are listed, none is read.
absl::StatusOr<Loaded> LoadImageFolder(const v1alpha1::ImageFolderSource& source,
                                       const LoadOptions& options, bool validation);

}  // namespace starling::data

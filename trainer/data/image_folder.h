// SPDX-License-Identifier: Apache-2.0
// A folder of images with one folder a class, as ImageNet's are laid out, wherever it lies.
//
// A worker holds the files' names; image_reader.h makes samples of what they hold.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/image_reader.h"
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
  std::string_view NameOf(std::int64_t image) const { return names_.At(image); }
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
  // All that are images, wherever they lie, as if of one class.
  static ImageIndex WithoutClasses(const std::vector<std::string>& names);

 private:
  Names names_;
  std::vector<std::int32_t> labels_;
  std::vector<std::string> classes_;
};

// The set that `source` names, with a reader; that of a training set changes images as the job's
// `dataset` says. Files are listed, none is read.
absl::StatusOr<Loaded> LoadImageFolder(const v1alpha1::ImageFolderSource& source,
                                       const LoadOptions& options, bool validation);

// One file, or all images that lie in a folder, also deeper in; their names are paths in the
// folder, or the file's. Errors name `field`.
absl::StatusOr<LooseImages> LoadLooseImages(const std::string& uri, const std::string& field,
                                            const std::vector<std::int64_t>& shape);

// Whether the name is that of an image: it ends in .jpg, .jpeg or .png, and nothing in it is
// hidden.
bool IsImage(std::string_view name);

}  // namespace starling::data

// SPDX-License-Identifier: Apache-2.0
// Images in tar archives, as WebDataset lays them out: cat/17.jpg and cat/17.cls, one behind the
// other, are a sample.
//
// Each archive's headers are read once, as the job starts; what is kept of an image is its name,
// its label, and where it lies. So a sample has a number, as those of any other set have, and is
// read by itself: from a disk, or from a store or a web server by a range. Nothing is shuffled or
// split by archives, and exactly-once holds as for all data (docs/design/data.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/image_reader.h"
#include "trainer/data/source.h"
#include "trainer/data/tar_reader.h"

namespace starling::v1alpha1 {
class TarSource;
}  // namespace starling::v1alpha1

namespace starling::data {

// The samples of one archive, in their order. Thread-compatible.
struct TarIndex {
  Names names;  // of the images' members
  std::vector<std::uint64_t> offsets;
  std::vector<std::uint32_t> sizes;
  std::vector<std::int32_t> labels;
  std::vector<std::string> bad;  // what is wrong with samples that are none
  bool whole = true;             // false: only a beginning of the archive was looked at

  void Add(const TarMember& image, std::int64_t label);
  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

// Of the members that `reader` finds before byte `limit`. Members with one name up to its first
// dot, one behind another, are one sample: one is an image (jpg, jpeg, png), `cls` holds its class
// as a whole number, and others are passed over; so are members with neither. `check` says what is
// wrong with a class. Errors as TarReader::Next has them.
absl::StatusOr<TarIndex> IndexTar(TarReader& reader, std::uint64_t limit,
                                  const std::function<absl::Status(std::int64_t label)>& check);

// The same of members that are images, whatever else is packed beside them: each has class 0.
absl::StatusOr<TarIndex> IndexTarImages(TarReader& reader, std::uint64_t limit);

// The set that `source` names, with a reader; that of a training set changes images as the job's
// `dataset` says.
absl::StatusOr<Loaded> LoadTar(const v1alpha1::TarSource& source, const LoadOptions& options,
                               bool validation);

// All images in the archives that `source` names, one archive behind another; their names are those
// of the members.
absl::StatusOr<LooseImages> LoadLooseTar(const v1alpha1::TarSource& source,
                                         const LoadOptions& options);

}  // namespace starling::data

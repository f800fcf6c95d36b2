// SPDX-License-Identifier: Apache-2.0
// What the loaders of one source each have in common: limits, files, errors that name a field.
//
// A loader is a function from its block of the job file to a Dataset; see load_datasets.h for how
// to add one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/storage/blob_store.h"
#include "trainer/data/dataset.h"

namespace starling::v1alpha1 {
class CsvSource;
class Dataset;
class IdxSource;
class SyntheticSource;
}  // namespace starling::v1alpha1

namespace starling::data {

class ObjectCache;

// Between the words of a line.
inline bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

inline constexpr std::int64_t kMaxClasses = 65536;
inline constexpr std::int64_t kMaxSamples = (std::int64_t{1} << 31) - 1;
inline constexpr std::int64_t kMaxFloats = std::int64_t{1} << 31;  // 8 GiB
inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 32;
inline constexpr float kByteScale = 1.0F / 255;  // pixels become 0 to 1

// How a loader is asked to go about it.
struct LoadOptions {
  std::string path;                      // of the source's field: spec.dataset.train.csv
  std::optional<std::int64_t> classes;   // of the training set, when this is the validation set
  std::vector<std::string> class_names;  // the same, where they have names
  bool numbers = false;                  // labels are any numbers, not classes
  bool labels = true;                    // false: nobody knows them, so that they are all 0; each
                                         // column of a table is a feature
  bool unlabelled = false;               // what samples are of is not looked at: a table's column
                                         // of labels is left out, if it has one, and images need
                                         // no classes
  bool shares = false;                   // features are from 0 to 1, for a loss that is of those
  std::uint64_t seed = 1;                // of the job
  const v1alpha1::Dataset* dataset = nullptr;  // of the job, for what becomes of bad records
  std::shared_ptr<ObjectCache> cache = {};     // of images that are read from afar; null: none
  std::size_t max_bytes = kMaxFileBytes;  // of each file; beyond it only a beginning is looked at
};

struct Loaded {
  Dataset dataset;
  bool whole = true;        // false: only a beginning of it, because of max_bytes
  bool per_feature = true;  // whether each feature is scaled by itself
};

absl::StatusOr<Loaded> LoadCsv(const v1alpha1::CsvSource& source, const LoadOptions& options);
absl::StatusOr<Loaded> LoadIdx(const v1alpha1::IdxSource& source, const LoadOptions& options);
absl::StatusOr<Loaded> LoadSynthetic(const v1alpha1::SyntheticSource& source,
                                     const LoadOptions& options, bool validation);

// `field: message`; the field's path holds no ": ", so that it can be told apart again.
absl::Status FieldError(absl::StatusCode code, std::string_view field, std::string_view message);

// Why `label` is none, if it is none; the caller says in which field and place.
absl::Status CheckLabel(std::int64_t label, std::optional<std::int64_t> own_classes,
                        const LoadOptions& options);
// The number of classes of a set whose highest label is `highest`.
absl::StatusOr<std::int64_t> CountClasses(std::int64_t highest,
                                          std::optional<std::int64_t> own_classes,
                                          const LoadOptions& options);

// A file of data, wherever it lies.
struct FileInfo {
  std::shared_ptr<storage::BlobStore> store;
  std::string name;  // in the store
  std::string path;  // for messages: without file://, else the URI
  std::size_t size = 0;
  std::string version = {};  // storage::BlobInfo's
};

// A regular, not empty file of at most kMaxFileBytes; errors name `field` and the remedy. `store`:
// that of its folder, or why there is none.
absl::StatusOr<FileInfo> Inspect(std::string_view uri, std::string_view field,
                                 const absl::StatusOr<std::shared_ptr<storage::BlobStore>>& store);
// The same with a store of its own.
absl::StatusOr<FileInfo> Inspect(std::string_view uri, std::string_view field);

// Its bytes from `offset` on; `into` must lie within its size. Errors name `field`. `cache`: where
// they are kept, too; may be null.
absl::Status ReadRange(const FileInfo& file, std::size_t offset, std::span<std::byte> into,
                       std::string_view field, ObjectCache* cache = nullptr);

// Its first `limit` bytes, or all of it.
absl::StatusOr<std::string> ReadStart(const FileInfo& file, std::size_t limit,
                                      std::string_view field);

// Foreign text for a message: quoted, control characters escaped, at most 40 characters.
std::string Quote(std::string_view text);

}  // namespace starling::data

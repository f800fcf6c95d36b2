// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image_folder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/storage/place.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/bad_records.h"
#include "trainer/data/read_ahead.h"
#include "trainer/image/decode.h"
#include "trainer/image/resample.h"

namespace starling::data {
namespace {

constexpr std::string_view kEndings[] = {".jpg", ".jpeg", ".png"};
constexpr float kByteScale = 1.0F / 255;
constexpr std::int64_t kCacheBytes = std::int64_t{256} << 20;  // by default
constexpr int kThreads = 2;                                    // by default

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

bool IsImage(std::string_view name) {
  if (name.starts_with('.') || name.find("/.") != std::string_view::npos) return false;
  return std::ranges::any_of(kEndings, [name](std::string_view ending) {
    return absl::EndsWithIgnoreCase(ToAbsl(name), ToAbsl(ending));
  });
}

// Those with images, sorted.
std::vector<std::string> FoldersOf(const std::vector<std::string>& names) {
  std::vector<std::string> folders;
  for (const std::string& name : names) {
    const std::size_t slash = name.find('/');
    if (slash == std::string::npos || !IsImage(name)) continue;
    // Of sorted names, those of one folder follow one another.
    if (folders.empty() || folders.back() != name.substr(0, slash)) {
      folders.push_back(name.substr(0, slash));
    }
  }
  std::ranges::sort(folders);
  return folders;
}

// Decoded images by number, as many as there is room for: what is in it stays, for in the next
// epoch each is as likely to be wanted as any other. Thread-safe.
class ImageCache {
 public:
  explicit ImageCache(std::int64_t bytes) : room_(bytes) {}

  std::optional<RawSample> Find(std::int64_t image) const {
    const sync::MutexLock lock(mutex_);
    const auto found = images_.find(image);
    return found == images_.end() ? std::nullopt : std::optional(found->second);
  }
  void Keep(std::int64_t image, const RawSample& sample) {
    const auto bytes = static_cast<std::int64_t>(sample.values.size());
    const sync::MutexLock lock(mutex_);
    if (bytes <= room_ && images_.try_emplace(image, sample).second) room_ -= bytes;
  }

 private:
  mutable sync::Mutex mutex_;
  std::int64_t room_ ABSL_GUARDED_BY(mutex_);
  std::map<std::int64_t, RawSample> images_ ABSL_GUARDED_BY(mutex_);
};

void Mirror(std::span<std::uint8_t> values, std::int64_t width) {
  for (; !values.empty(); values = values.subspan(static_cast<std::size_t>(width))) {
    std::ranges::reverse(values.first(static_cast<std::size_t>(width)));
  }
}

// Thread-safe.
class ImageFolder final : public SampleReader {
 public:
  struct Parts {
    std::string field;   // of the job file: spec.dataset.train.imageFolder.uri
    std::string folder;  // for messages
    std::shared_ptr<storage::BlobStore> store;
    ImageIndex index;
    int channels = 3;
    image::Size shape;
    std::uint64_t seed = 1;
    std::optional<v1alpha1::Augmentation> augmentation;  // of the training set
    std::int64_t cache_bytes = kCacheBytes;
    int threads = kThreads;
  };
  ImageFolder(Parts parts, const v1alpha1::Dataset* dataset)
      : parts_(std::move(parts)),
        bad_(dataset),
        cache_(parts_.cache_bytes),
        ahead_(parts_.threads, [this](const SampleKey& key) { return Make(key); }) {}

  std::int64_t size() const override { return parts_.index.size(); }

  absl::Status Read(std::span<const std::int64_t> ids, std::int64_t epoch,
                    std::span<float> features, std::span<std::int64_t> labels) override {
    const std::vector<SampleKey> keys = KeysOf(ids, epoch);
    ahead_.Want(keys);
    const std::size_t width = ids.empty() ? 0 : features.size() / ids.size();
    for (std::size_t i = 0; i < keys.size(); ++i) {
      ASSIGN_OR_RETURN(const RawSample sample, ahead_.Take(keys[i]));
      std::ranges::transform(
          sample.values, features.subspan(i * width, width).begin(),
          [](std::uint8_t value) { return static_cast<float>(value) * kByteScale; });
      labels[i] = sample.label;
    }
    return absl::OkStatus();
  }

  void Expect(std::span<const std::int64_t> ids, std::int64_t epoch) override {
    ahead_.Expect(KeysOf(ids, epoch));
  }

  std::string Digest() const override { return parts_.index.Digest(); }

 private:
  static std::vector<SampleKey> KeysOf(std::span<const std::int64_t> ids, std::int64_t epoch) {
    std::vector<SampleKey> keys;
    keys.reserve(ids.size());
    for (const std::int64_t id : ids) keys.push_back({id, epoch});
    return keys;
  }

  // The image, or in place of a bad one the next that can be read.
  absl::StatusOr<RawSample> Make(const SampleKey& key) {
    absl::Status error;
    for (std::int64_t further = 0; further < size(); ++further) {
      const std::int64_t image = (key.id + further) % size();
      if (bad_.Known(image)) continue;
      absl::StatusOr<RawSample> made = MakeOne(image, key.epoch);
      if (made.ok() || !absl::IsInvalidArgument(made.status())) return made;
      error = bad_.Pass(image, made.status());
      if (!error.ok()) return error;
    }
    return Problem(absl::StatusCode::kInvalidArgument,
                   absl::StrCat(parts_.folder, ": none of its images can be read"));
  }

  absl::StatusOr<RawSample> MakeOne(std::int64_t image, std::int64_t epoch) {
    const bool crops = epoch > 0 && parts_.augmentation && parts_.augmentation->has_random_crop();
    if (!crops) {
      if (std::optional<RawSample> kept = cache_.Find(image)) {
        return Flipped(*std::move(kept), image, epoch);
      }
    }
    ASSIGN_OR_RETURN(const std::vector<std::byte> file, ReadFile(image));
    absl::StatusOr<RawSample> sample = Decode(file, image, crops ? epoch : 0);
    if (!sample.ok()) {
      return Problem(sample.status().code(),
                     absl::StrCat(PathOf(image), " ", sample.status().message(),
                                  "; repair or remove it (dataset.onBadRecord: Skip passes over "
                                  "such images)"));
    }
    if (!crops) cache_.Keep(image, *sample);
    return Flipped(*std::move(sample), image, epoch);
  }

  absl::StatusOr<std::vector<std::byte>> ReadFile(std::int64_t image) const {
    const std::string name(parts_.index.NameOf(image));
    auto file = storage::ReadAll(*parts_.store, name, image::kMaxFileBytes);
    if (file.ok()) return file;
    if (absl::IsOutOfRange(file.status())) {
      return Problem(absl::StatusCode::kInvalidArgument,
                     absl::StrCat(PathOf(image), " has more than ", image::kMaxFileBytes,
                                  " bytes, or changed while it was read"));
    }
    // What a file holds may be passed over; that it cannot be had, may not.
    const auto code =
        absl::IsInvalidArgument(file.status()) ? absl::StatusCode::kDataLoss : file.status().code();
    return Problem(code, std::string(file.status().message()));
  }

  // Of pass `epoch`; 0: around the middle.
  absl::StatusOr<RawSample> Decode(std::span<const std::byte> file, std::int64_t image,
                                   std::int64_t epoch) const {
    ASSIGN_OR_RETURN(const image::Size whole, image::SizeOf(file));
    image::Box box = PlacementOf(image, epoch, whole).box;
    const double least = std::max(static_cast<double>(parts_.shape.width) / box.width,
                                  static_cast<double>(parts_.shape.height) / box.height);
    ASSIGN_OR_RETURN(const image::Image decoded, image::Decode(file, parts_.channels, least));
    const double across =
        static_cast<double>(decoded.size.width) / static_cast<double>(whole.width);
    const double down =
        static_cast<double>(decoded.size.height) / static_cast<double>(whole.height);
    box = {box.left * across, box.top * down, box.width * across, box.height * down};
    RawSample sample;
    sample.label = parts_.index.LabelOf(image);
    sample.values.resize(
        static_cast<std::size_t>(parts_.channels * parts_.shape.width * parts_.shape.height));
    image::Resample(decoded, box, parts_.shape, sample.values);
    return sample;
  }

  Placement PlacementOf(std::int64_t image, std::int64_t epoch, image::Size whole) const {
    if (epoch == 0 || !parts_.augmentation) return Centred(whole, parts_.shape);
    return Draw(*parts_.augmentation, parts_.seed, epoch, image, whole, parts_.shape);
  }

  RawSample Flipped(RawSample sample, std::int64_t image, std::int64_t epoch) const {
    // Whether it is mirrored does not depend on how large it is.
    if (PlacementOf(image, epoch, parts_.shape).mirrored) Mirror(sample.values, parts_.shape.width);
    return sample;
  }

  std::string PathOf(std::int64_t image) const {
    return absl::StrCat(parts_.folder, "/", ToAbsl(parts_.index.NameOf(image)));
  }

  absl::Status Problem(absl::StatusCode code, std::string_view message) const {
    return FieldError(code, parts_.field, message);
  }

  const Parts parts_;
  BadRecords bad_;
  ImageCache cache_;
  ReadAhead ahead_;  // last: its threads use the others
};

std::string FolderOf(const std::string& uri) {
  const auto place = storage::ParsePlace(uri);
  std::string folder = place.ok() && place->kind == storage::Place::Kind::kFile ? place->path : uri;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

absl::Status CheckShape(const v1alpha1::ImageFolderSource& source, const std::string& path) {
  const auto& shape = source.shape();
  if (shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] > 0 && shape[2] > 0) {
    return absl::OkStatus();
  }
  return FieldError(absl::StatusCode::kInvalidArgument, path + ".shape",
                    absl::StrCat("must be [channels, height, width] with 1 or 3 channels, not [",
                                 absl::StrJoin(shape, ", "), "]"));
}

}  // namespace

std::string_view ImageIndex::NameOf(std::int64_t image) const {
  const auto number = static_cast<std::size_t>(image);
  const std::size_t begin = number == 0 ? 0 : ends_[number - 1];
  return std::string_view(names_).substr(begin, ends_[number] - begin);
}

std::string ImageIndex::Digest() const {
  bytes::Sha256 digest;
  digest.Update(std::as_bytes(std::span(names_)));
  digest.Update(std::as_bytes(std::span(ends_)));
  digest.Update(std::as_bytes(std::span(labels_)));
  return bytes::ToHex(digest.Finish());
}

absl::StatusOr<ImageIndex> ImageIndex::Of(const std::vector<std::string>& names,
                                          const std::vector<std::string>& classes) {
  ImageIndex index;
  index.classes_ = classes.empty() ? FoldersOf(names) : classes;
  bool beside = false;
  for (const std::string& name : names) {
    if (!IsImage(name)) continue;
    const std::size_t slash = name.find('/');
    beside = beside || slash == std::string::npos;
    if (slash == std::string::npos) continue;
    const std::string folder = name.substr(0, slash);
    const auto label = std::ranges::lower_bound(index.classes_, folder);
    if (label == index.classes_.end() || *label != folder) {
      return absl::InvalidArgumentError(
          absl::StrCat("has a folder ", Quote(folder),
                       ", which the training set has not; a class has the same name in both"));
    }
    index.names_ += name;
    index.ends_.push_back(index.names_.size());
    index.labels_.push_back(static_cast<std::int32_t>(label - index.classes_.begin()));
  }
  if (index.size() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "holds no images (.jpg, .jpeg, .png) in folders of their classes",
        beside ? ", only some beside them; move each image into the folder of its class"
               : "; it must have one folder a class, such as cats/1.jpg and dogs/1.jpg"));
  }
  if (index.classes_.size() < 2 || static_cast<std::int64_t>(index.classes_.size()) > kMaxClasses) {
    return absl::InvalidArgumentError(absl::StrCat("has ", index.classes_.size(),
                                                   " folders with images; there must be one for "
                                                   "each of 2 to ",
                                                   kMaxClasses, " classes"));
  }
  return index;
}

absl::StatusOr<Loaded> LoadImageFolder(const v1alpha1::ImageFolderSource& source,
                                       const LoadOptions& options, bool validation) {
  const v1alpha1::Dataset& dataset = *options.dataset;
  RETURN_IF_ERROR(CheckShape(source, options.path));
  ImageFolder::Parts parts;
  parts.field = options.path + ".uri";
  parts.folder = FolderOf(source.uri());
  auto store = storage::Open(source.uri());
  if (!store.ok()) {
    return FieldError(store.status().code(), parts.field,
                      absl::StrCat(Quote(source.uri()), ": ", store.status().message()));
  }
  parts.store = *std::move(store);
  const auto names = parts.store->List("");
  if (!names.ok()) {
    return FieldError(names.status().code(), parts.field, std::string(names.status().message()));
  }
  absl::StatusOr<ImageIndex> index = ImageIndex::Of(*names, options.class_names);
  if (!index.ok()) {
    return FieldError(index.status().code(), parts.field,
                      absl::StrCat(parts.folder, names->empty() ? ": is not there, or" : ":", " ",
                                   index.status().message()));
  }
  parts.index = *std::move(index);
  const auto& shape = source.shape();
  parts.channels = static_cast<int>(shape[0]);
  parts.shape = {.width = shape[2], .height = shape[1]};
  parts.seed = options.seed;
  if (!validation && dataset.has_augmentation()) parts.augmentation = dataset.augmentation();
  if (source.has_cache_bytes()) parts.cache_bytes = source.cache_bytes();
  if (source.has_threads()) parts.threads = static_cast<int>(source.threads());
  Loaded loaded;
  loaded.per_feature = false;
  loaded.dataset.shape.assign(shape.begin(), shape.end());
  loaded.dataset.class_names = parts.index.classes();
  loaded.dataset.classes = static_cast<std::int64_t>(parts.index.classes().size());
  loaded.dataset.reader = std::make_shared<ImageFolder>(std::move(parts), options.dataset);
  return loaded;
}

}  // namespace starling::data

// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tar_source.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "common/storage/place.h"
#include "common/sync/mutex.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/bad_records.h"
#include "trainer/image/decode.h"

namespace starling::data {
namespace {

constexpr std::string_view kImageEndings[] = {"jpg", "jpeg", "png"};
constexpr std::string_view kClassEnding = "cls";
constexpr std::size_t kIndexThreads = 8;  // archives whose headers are read at once
// What is read at once for headers: on a disk a little, for passing over costs nothing there; else
// so much that an answer is not waited for at each of them.
constexpr std::size_t kMostFromDisk = std::size_t{64} << 10;
constexpr std::size_t kMostFromAfar = std::size_t{4} << 20;

// A member's name at the first dot of its last part: what a sample's members have in common, and
// what this one is. Those of hidden files and of names without a dot are empty.
struct Parts {
  std::string_view key;
  std::string ending;  // in lower case
};

Parts PartsOf(std::string_view name) {
  const std::size_t slash = name.rfind('/');
  const std::size_t last = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', last);
  if (dot == std::string_view::npos || dot == last) return {};
  return {name.substr(0, dot), absl::AsciiStrToLower(ToAbsl(name.substr(dot + 1)))};
}

bool IsImage(const Parts& parts) {
  return std::ranges::find(kImageEndings, parts.ending) != std::end(kImageEndings);
}

// Why an image is not read; empty: it is.
std::string TooLarge(const TarMember& image) {
  if (image.size <= image::kMaxFileBytes) return "";
  return absl::StrCat(image.name, " has ", image.size, " bytes, more than ", image::kMaxFileBytes,
                      " of an image");
}

// Gathers members to samples. Confined to IndexTar.
class Gatherer {
 public:
  Gatherer(TarReader& reader, const std::function<absl::Status(std::int64_t)>& check)
      : reader_(reader), check_(check) {}

  absl::Status Add(const TarMember& member) {
    const Parts parts = PartsOf(member.name);
    if (parts.key != key_) End();
    key_ = std::string(parts.key);
    if (key_.empty()) return absl::OkStatus();
    if (parts.ending == kClassEnding) return AddClass(member);
    if (IsImage(parts)) AddImage(member);
    return absl::OkStatus();
  }

  // The sample whose members were added.
  void End() {
    if (problem_.empty() && image_.has_value() != label_.has_value()) {
      problem_ = image_.has_value() ? absl::StrCat(image_->name, " has no class; pack ", key_,
                                                   ".cls behind it, a file that holds the number")
                                    : absl::StrCat(key_, ".cls has no image (jpg, jpeg, png)");
    }
    if (!problem_.empty()) {
      index_.bad.push_back(problem_);
    } else if (image_.has_value()) {
      index_.Add(*image_, *label_);
    }
    image_.reset();
    label_.reset();
    problem_.clear();
  }

  TarIndex& index() { return index_; }

 private:
  void AddImage(const TarMember& member) {
    if (image_.has_value()) {
      problem_ = absl::StrCat(key_, " has two images, ", image_->name, " and ", member.name,
                              "; a sample is one");
    } else if (std::string large = TooLarge(member); !large.empty()) {
      problem_ = std::move(large);
    }
    image_ = member;
  }

  absl::Status AddClass(const TarMember& member) {
    constexpr std::uint64_t kMost = 32;
    std::string text;
    if (member.size <= kMost) {
      ASSIGN_OR_RETURN(text, reader_.ReadText(member));
    }
    std::int64_t label = 0;
    if (label_.has_value()) {
      problem_ = absl::StrCat(member.name, " is there twice");
    } else if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &label)) {
      problem_ =
          absl::StrCat(member.name, " holds ",
                       member.size > kMost ? absl::StrCat(member.size, " bytes") : Quote(text),
                       "; it must hold the number of a class");
    } else if (const absl::Status wrong = check_(label); !wrong.ok()) {
      problem_ = absl::StrCat(member.name, ": ", wrong.message());
    }
    label_ = label;
    return absl::OkStatus();
  }

  TarReader& reader_;
  const std::function<absl::Status(std::int64_t)>& check_;
  TarIndex index_;
  std::string key_;
  std::optional<TarMember> image_;
  std::optional<std::int64_t> label_;
  std::string problem_;
};

// The stores of folders, each opened once. Thread-safe.
class Stores {
 public:
  absl::StatusOr<std::shared_ptr<storage::BlobStore>> Of(const std::string& folder) {
    const sync::MutexLock lock(mutex_);
    std::shared_ptr<storage::BlobStore>& store = stores_[folder];
    if (store == nullptr) {
      ASSIGN_OR_RETURN(store, storage::Open(folder));
    }
    return store;
  }

 private:
  sync::Mutex mutex_;
  std::map<std::string, std::shared_ptr<storage::BlobStore>> stores_ ABSL_GUARDED_BY(mutex_);
};

struct Shard {
  FileInfo file;
  TarIndex index;
};

// Thread-safe.
class TarFiles final : public ImageFiles {
 public:
  TarFiles(std::vector<Shard> shards, std::string field, std::shared_ptr<ObjectCache> cache)
      : shards_(std::move(shards)), field_(std::move(field)), cache_(std::move(cache)) {
    for (const Shard& shard : shards_) {
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + shard.index.size());
    }
  }

  std::int64_t size() const override { return ends_.back(); }
  std::int64_t LabelOf(std::int64_t image) const override {
    const Place place = PlaceOf(image);
    return place.shard.index.labels[place.number];
  }
  std::string PathOf(std::int64_t image) const override {
    const Place place = PlaceOf(image);
    const auto name = place.shard.index.names.At(static_cast<std::int64_t>(place.number));
    return absl::StrCat(place.shard.file.path, ": ", ToAbsl(name));
  }

  absl::StatusOr<std::vector<std::byte>> Read(std::int64_t image) const override {
    const Place place = PlaceOf(image);
    std::vector<std::byte> content(place.shard.index.sizes[place.number]);
    const absl::Status status = ReadRange(place.shard.file, place.shard.index.offsets[place.number],
                                          content, field_, cache_.get());
    if (status.ok()) return content;
    // What an image holds may be passed over; that an archive cannot be had, may not.
    return absl::IsInvalidArgument(status) ? absl::DataLossError(status.message()) : status;
  }

  std::string Digest() const override {
    bytes::Sha256 digest;
    for (const Shard& shard : shards_) {
      shard.index.names.AddTo(digest);
      digest.Update(std::as_bytes(std::span(shard.index.offsets)));
      digest.Update(std::as_bytes(std::span(shard.index.sizes)));
      digest.Update(std::as_bytes(std::span(shard.index.labels)));
    }
    return bytes::ToHex(digest.Finish());
  }

 private:
  struct Place {
    const Shard& shard;
    std::size_t number;  // within it
  };
  Place PlaceOf(std::int64_t image) const {
    const auto shard =
        static_cast<std::size_t>(std::ranges::upper_bound(ends_, image) - ends_.begin());
    const std::int64_t before = shard == 0 ? 0 : ends_[shard - 1];
    return {shards_[shard], static_cast<std::size_t>(image - before)};
  }

  const std::vector<Shard> shards_;
  const std::string field_;
  const std::shared_ptr<ObjectCache> cache_;  // may be null
  std::vector<std::int64_t> ends_;            // samples up to the end of each shard
};

// Reads the headers of archives, several at once. Confined to LoadTar.
class Indexer {
 public:
  Indexer(std::vector<std::string> uris, const LoadOptions& options,
          std::optional<std::int64_t> classes)
      : uris_(std::move(uris)),
        options_(options),
        classes_(classes),
        shards_(uris_.size()),
        states_(uris_.size()) {}

  // Of the first that is wrong, or all of them.
  absl::StatusOr<std::vector<Shard>> Run() {
    std::atomic<std::size_t> next = 0;
    std::atomic<bool> failed = false;
    const auto work = [&] {
      for (std::size_t i = next++; i < uris_.size() && !failed; i = next++) {
        states_[i] = Index(i);
        if (!states_[i].ok()) failed = true;
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t i = 1; i < std::min(kIndexThreads, uris_.size()); ++i) {
      threads.emplace_back(work);
    }
    work();
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& state : states_) RETURN_IF_ERROR(state);
    return std::move(shards_);
  }

 private:
  absl::Status Index(std::size_t number) {
    const std::string field = options_.path + ".uri";
    const auto store = stores_.Of(storage::SplitUri(uris_[number]).folder);
    ASSIGN_OR_RETURN(FileInfo file, Inspect(uris_[number], field, store));
    const auto place = storage::ParsePlace(uris_[number]);
    const bool near = place.ok() && place->kind == storage::Place::Kind::kFile;
    TarReader reader(file.size, near ? kMostFromDisk : kMostFromAfar,
                     [&](std::uint64_t offset, std::span<std::byte> into) {
                       return ReadRange(file, offset, into, field);
                     });
    auto index =
        options_.labels && !options_.unlabelled
            ? IndexTar(reader, options_.max_bytes,
                       [this](std::int64_t label) { return CheckLabel(label, classes_, options_); })
            : IndexTarImages(reader, options_.max_bytes);
    // What is wrong with the archive does not yet say where; what happened while it was read does.
    if (!index.ok() && absl::IsInvalidArgument(index.status())) {
      return FieldError(index.status().code(), field,
                        absl::StrCat(file.path, " ", index.status().message()));
    }
    RETURN_IF_ERROR(index.status());
    shards_[number] = {std::move(file), *std::move(index)};
    return absl::OkStatus();
  }

  const std::vector<std::string> uris_;
  const LoadOptions& options_;
  const std::optional<std::int64_t> classes_;
  Stores stores_;
  // Each element is used by the thread alone that has its number.
  std::vector<Shard> shards_;
  std::vector<absl::Status> states_;
};

absl::StatusOr<std::vector<std::string>> UrisOf(const v1alpha1::TarSource& source,
                                                const std::string& field) {
  auto uris = storage::ExpandRanges(source.uri());
  if (uris.ok()) return uris;
  return FieldError(uris.status().code(), field,
                    absl::StrCat(Quote(source.uri()), " ", uris.status().message()));
}

constexpr std::string_view kNoImages =
    "there are no images; pack files whose names end in .jpg, .jpeg or .png behind their first "
    "dot, such as 17.jpg";

// There is nothing to be had from all of them.
absl::Status Empty(const std::vector<Shard>& shards, const std::string& field,
                   std::string_view why) {
  return FieldError(absl::StatusCode::kInvalidArgument, field,
                    absl::StrCat(shards.front().file.path,
                                 shards.size() > 1 ? " and the others" : "", ": ", ToAbsl(why)));
}

// In the order of the archives, so that all workers count alike.
absl::Status JudgeBad(const std::vector<Shard>& shards, const std::string& field, BadRecords& bad) {
  std::int64_t number = 0;
  for (const Shard& shard : shards) {
    for (const std::string& problem : shard.index.bad) {
      // Samples that can be read have the numbers from 0 on.
      RETURN_IF_ERROR(bad.Pass(--number, FieldError(absl::StatusCode::kInvalidArgument, field,
                                                    absl::StrCat(shard.file.path, ": ", problem,
                                                                 bad.Remedy("samples")))));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void TarIndex::Add(const TarMember& image, std::int64_t label) {
  names.Add(image.name);
  offsets.push_back(image.offset);
  sizes.push_back(static_cast<std::uint32_t>(image.size));
  labels.push_back(static_cast<std::int32_t>(label));
}

absl::StatusOr<TarIndex> IndexTar(TarReader& reader, std::uint64_t limit,
                                  const std::function<absl::Status(std::int64_t label)>& check) {
  Gatherer gatherer(reader, check);
  while (true) {
    if (reader.position() >= limit) {
      // The last sample may have more members.
      gatherer.index().whole = false;
      return std::move(gatherer.index());
    }
    ASSIGN_OR_RETURN(const std::optional<TarMember> member, reader.Next());
    if (!member.has_value()) break;
    RETURN_IF_ERROR(gatherer.Add(*member));
  }
  gatherer.End();
  return std::move(gatherer.index());
}

absl::StatusOr<TarIndex> IndexTarImages(TarReader& reader, std::uint64_t limit) {
  TarIndex index;
  while (true) {
    if (reader.position() >= limit) {
      index.whole = false;
      return index;
    }
    ASSIGN_OR_RETURN(const std::optional<TarMember> member, reader.Next());
    if (!member.has_value()) return index;
    if (!IsImage(PartsOf(member->name))) continue;
    if (std::string large = TooLarge(*member); !large.empty()) {
      index.bad.push_back(std::move(large));
    } else {
      index.Add(*member, 0);
    }
  }
}

absl::StatusOr<Loaded> LoadTar(const v1alpha1::TarSource& source, const LoadOptions& options,
                               bool validation) {
  ASSIGN_OR_RETURN(ImageSettings settings, ImageSettingsOf(source, options, validation));
  const std::string field = settings.field;
  ASSIGN_OR_RETURN(std::vector<std::string> uris, UrisOf(source, field));
  // Of many archives a beginning is the first one.
  const bool some = options.max_bytes < kMaxFileBytes && uris.size() > 1;
  if (some) uris.resize(1);
  std::optional<std::int64_t> own_classes;
  if (source.has_classes()) own_classes = source.classes();
  ASSIGN_OR_RETURN(std::vector<Shard> shards, Indexer(std::move(uris), options, own_classes).Run());

  auto bad = std::make_shared<BadRecords>(options.dataset);
  RETURN_IF_ERROR(JudgeBad(shards, field, *bad));
  bool whole = !some;
  std::int64_t highest = 0;
  std::int64_t samples = 0;
  for (const Shard& shard : shards) {
    whole = whole && shard.index.whole;
    samples += shard.index.size();
    for (const std::int32_t label : shard.index.labels) {
      highest = std::max<std::int64_t>(highest, label);
    }
  }
  if (samples == 0 && whole) {
    if (options.unlabelled) return Empty(shards, field, kNoImages);
    return Empty(shards, field,
                 "there are no samples; pack each image (jpg, jpeg, png) with its class, such as "
                 "17.jpg and 17.cls");
  }
  std::int64_t classes = 0;
  if (!options.unlabelled) {
    ASSIGN_OR_RETURN(classes, CountClasses(highest, own_classes, options));
  }
  Loaded loaded = LoadImages(std::make_unique<TarFiles>(std::move(shards), field, options.cache),
                             std::move(settings), std::move(bad));
  loaded.whole = whole;
  loaded.dataset.classes = classes;
  return loaded;
}

absl::StatusOr<LooseImages> LoadLooseTar(const v1alpha1::TarSource& source,
                                         const LoadOptions& options) {
  ASSIGN_OR_RETURN(ImageSettings settings, ImageSettingsOf(source, options, /*validation=*/true));
  const std::string field = settings.field;
  ASSIGN_OR_RETURN(std::vector<std::string> uris, UrisOf(source, field));
  LoadOptions loose = options;
  loose.labels = false;
  ASSIGN_OR_RETURN(std::vector<Shard> shards, Indexer(std::move(uris), loose, std::nullopt).Run());
  auto bad = std::make_shared<BadRecords>(options.dataset);
  RETURN_IF_ERROR(JudgeBad(shards, field, *bad));
  LooseImages images;
  for (const Shard& shard : shards) {
    for (std::int64_t i = 0; i < shard.index.size(); ++i) {
      images.names.emplace_back(shard.index.names.At(i));
    }
  }
  if (images.names.empty()) {
    return Empty(shards, field, kNoImages);
  }
  images.loaded = LoadImages(std::make_unique<TarFiles>(std::move(shards), field, options.cache),
                             std::move(settings), std::move(bad));
  return images;
}

}  // namespace starling::data

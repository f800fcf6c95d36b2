// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image_reader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status/macros.h"
#include "common/sync/mutex.h"
#include "trainer/data/augmentation.h"
#include "trainer/data/read_ahead.h"
#include "trainer/data/source.h"
#include "trainer/image/decode.h"

namespace starling::data {
namespace {

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
class ImageReader final : public SampleReader {
 public:
  ImageReader(std::unique_ptr<const ImageFiles> files, ImageSettings settings,
              std::shared_ptr<BadRecords> bad)
      : files_(std::move(files)),
        settings_(std::move(settings)),
        bad_(std::move(bad)),
        cache_(settings_.cache_bytes),
        ahead_(settings_.threads, [this](const SampleKey& key) { return Make(key); }) {}

  std::int64_t size() const override { return files_->size(); }

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

  std::string Digest() const override { return files_->Digest(); }

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
      if (bad_->Known(image)) continue;
      absl::StatusOr<RawSample> made = MakeOne(image, key.epoch);
      if (made.ok() || !absl::IsInvalidArgument(made.status())) return made;
      error = bad_->Pass(image, made.status());
      if (!error.ok()) return error;
    }
    return Problem(absl::StatusCode::kInvalidArgument, "none of its images can be read");
  }

  absl::StatusOr<RawSample> MakeOne(std::int64_t image, std::int64_t epoch) {
    const bool crops =
        epoch > 0 && settings_.augmentation && settings_.augmentation->has_random_crop();
    if (!crops) {
      if (std::optional<RawSample> kept = cache_.Find(image)) {
        return Flipped(*std::move(kept), image, epoch);
      }
    }
    ASSIGN_OR_RETURN(const std::vector<std::byte> file, files_->Read(image));
    absl::StatusOr<RawSample> sample = Decode(file, image, crops ? epoch : 0);
    if (!sample.ok()) {
      return Problem(sample.status().code(),
                     absl::StrCat(files_->PathOf(image), " ", sample.status().message(),
                                  "; repair or remove it", bad_->Remedy("images")));
    }
    if (!crops) cache_.Keep(image, *sample);
    return Flipped(*std::move(sample), image, epoch);
  }

  // Of pass `epoch`; 0: around the middle.
  absl::StatusOr<RawSample> Decode(std::span<const std::byte> file, std::int64_t image,
                                   std::int64_t epoch) const {
    ASSIGN_OR_RETURN(const image::Size whole, image::SizeOf(file));
    image::Box box = PlacementOf(image, epoch, whole).box;
    const double least = std::max(static_cast<double>(settings_.shape.width) / box.width,
                                  static_cast<double>(settings_.shape.height) / box.height);
    ASSIGN_OR_RETURN(const image::Image decoded, image::Decode(file, settings_.channels, least));
    const double across =
        static_cast<double>(decoded.size.width) / static_cast<double>(whole.width);
    const double down =
        static_cast<double>(decoded.size.height) / static_cast<double>(whole.height);
    box = {box.left * across, box.top * down, box.width * across, box.height * down};
    RawSample sample;
    sample.label = files_->LabelOf(image);
    sample.values.resize(static_cast<std::size_t>(settings_.channels * settings_.shape.width *
                                                  settings_.shape.height));
    image::Resample(decoded, box, settings_.shape, sample.values);
    return sample;
  }

  Placement PlacementOf(std::int64_t image, std::int64_t epoch, image::Size whole) const {
    if (epoch == 0 || !settings_.augmentation) return Centred(whole, settings_.shape);
    return Draw(*settings_.augmentation, settings_.seed, epoch, image, whole, settings_.shape);
  }

  RawSample Flipped(RawSample sample, std::int64_t image, std::int64_t epoch) const {
    // Whether it is mirrored does not depend on how large it is.
    if (PlacementOf(image, epoch, settings_.shape).mirrored)
      Mirror(sample.values, settings_.shape.width);
    return sample;
  }

  absl::Status Problem(absl::StatusCode code, std::string_view message) const {
    return FieldError(code, settings_.field, message);
  }

  const std::unique_ptr<const ImageFiles> files_;
  const ImageSettings settings_;
  const std::shared_ptr<BadRecords> bad_;
  ImageCache cache_;
  ReadAhead ahead_;  // last: its threads use the others
};

}  // namespace

absl::Status CheckImageShape(const std::vector<std::int64_t>& shape, const std::string& path) {
  if (shape.size() == 3 && (shape[0] == 1 || shape[0] == 3) && shape[1] > 0 && shape[2] > 0) {
    return absl::OkStatus();
  }
  return FieldError(absl::StatusCode::kInvalidArgument, path + ".shape",
                    absl::StrCat("must be [channels, height, width] with 1 or 3 channels, not [",
                                 absl::StrJoin(shape, ", "), "]"));
}

Loaded LoadImages(std::unique_ptr<const ImageFiles> files, ImageSettings settings,
                  std::shared_ptr<BadRecords> bad) {
  Loaded loaded;
  loaded.per_feature = false;
  loaded.dataset.shape = {settings.channels, settings.shape.height, settings.shape.width};
  loaded.dataset.reader =
      std::make_shared<ImageReader>(std::move(files), std::move(settings), std::move(bad));
  return loaded;
}

void Names::Add(std::string_view name) {
  text_ += name;
  ends_.push_back(text_.size());
}

void Names::Add(const Names& other) {
  const std::uint64_t begin = text_.size();
  text_ += other.text_;
  for (const std::uint64_t end : other.ends_) ends_.push_back(begin + end);
}

std::string_view Names::At(std::int64_t number) const {
  const auto i = static_cast<std::size_t>(number);
  const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

void Names::AddTo(bytes::Sha256& digest) const {
  digest.Update(std::as_bytes(std::span(text_)));
  digest.Update(std::as_bytes(std::span(ends_)));
}

}  // namespace starling::data

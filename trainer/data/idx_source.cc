// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/source.h"

namespace starling::data {
namespace {

constexpr std::uint32_t kImagesMagic = 0x00000803;
constexpr std::uint32_t kLabelsMagic = 0x00000801;
constexpr std::size_t kHighestRatio = 1100;  // deflate cannot do better than 1032 to 1
constexpr std::int64_t kMaxSide = 65536;

// The bytes of a file one behind another, unpacked if it is gzip. Confined to LoadIdx.
class Unpacker {
 public:
  Unpacker(FileInfo file, std::string field) : file_(std::move(file)), field_(std::move(field)) {}
  ~Unpacker() {
    if (packed_) ::inflateEnd(&stream_);
  }
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  absl::Status Begin() {
    RETURN_IF_ERROR(Fill());
    if (stream_.avail_in < 2 || block_[0] != 0x1f || block_[1] != 0x8b) return absl::OkStatus();
    packed_ = ::inflateInit2(&stream_, MAX_WBITS + kGzip) == Z_OK;
    return packed_ ? absl::OkStatus()
                   : absl::ResourceExhaustedError(absl::StrCat(file_.path, ": no memory"));
  }
  bool packed() const { return packed_; }
  const FileInfo& file() const { return file_; }
  const std::string& field() const { return field_; }

  // How many of the wanted bytes there are: fewer at the end. DATA_LOSS, with the reason alone: it
  // is damaged, or ends too early to be whole.
  absl::StatusOr<std::size_t> Read(std::span<unsigned char> target) {
    stream_.next_out = target.data();
    stream_.avail_out = static_cast<unsigned>(target.size());
    while (stream_.avail_out > 0) {
      if (stream_.avail_in == 0) RETURN_IF_ERROR(Fill());
      if (stream_.avail_in == 0 && !ended_ && packed_) return absl::DataLossError("");
      if (stream_.avail_in == 0) break;
      RETURN_IF_ERROR(packed_ ? Inflate() : Copy());
    }
    return target.size() - stream_.avail_out;
  }

 private:
  static constexpr int kGzip = 16;  // what zlib wants added to the window's bits
  static constexpr std::size_t kBlock = 1 << 20;

  absl::Status Fill() {
    block_.resize(std::min(kBlock, file_.size - position_));
    if (block_.empty()) return absl::OkStatus();
    RETURN_IF_ERROR(ReadRange(file_, position_, std::as_writable_bytes(std::span(block_)), field_));
    position_ += block_.size();
    stream_.next_in = block_.data();
    stream_.avail_in = static_cast<unsigned>(block_.size());
    return absl::OkStatus();
  }

  absl::Status Copy() {
    const unsigned count = std::min(stream_.avail_in, stream_.avail_out);
    std::copy_n(stream_.next_in, count, stream_.next_out);
    stream_.next_in += count;
    stream_.avail_in -= count;
    stream_.next_out += count;
    stream_.avail_out -= count;
    return absl::OkStatus();
  }

  absl::Status Inflate() {
    // A file may hold several packed ones, which are one.
    if (ended_ && ::inflateReset(&stream_) != Z_OK) return absl::DataLossError("no memory");
    const int code = ::inflate(&stream_, Z_NO_FLUSH);
    ended_ = code == Z_STREAM_END;
    if (code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR) return absl::OkStatus();
    return absl::DataLossError(stream_.msg != nullptr ? stream_.msg : "incorrect data");
  }

  const FileInfo file_;
  const std::string field_;
  bool packed_ = false;
  bool ended_ = false;  // at the end of something packed
  std::size_t position_ = 0;
  std::vector<unsigned char> block_;
  z_stream stream_ = {};
};

// One IDX file, plain or gzip. Confined to LoadIdx.
class IdxFile {
 public:
  static absl::StatusOr<IdxFile> Open(const std::string& uri, const std::string& field) {
    ASSIGN_OR_RETURN(FileInfo info, Inspect(uri, field));
    auto bytes = std::make_unique<Unpacker>(std::move(info), field);
    RETURN_IF_ERROR(bytes->Begin());
    return IdxFile(std::move(bytes));
  }

  // Big-endian words, as the format has them.
  absl::Status ReadHeader(std::uint32_t magic, std::span<std::int64_t> dimensions) {
    ASSIGN_OR_RETURN(const std::uint32_t found, ReadWord());
    if (found != magic) {
      return Problem(
          absl::StrFormat("begins with 0x%08x instead of 0x%08x; this is not a file of "
                          "%s in MNIST's format%s",
                          found, magic, magic == kImagesMagic ? "images" : "labels",
                          found == kImagesMagic || found == kLabelsMagic
                              ? ": imagesUri and labelsUri seem to be swapped"
                              : ""));
    }
    for (std::int64_t& dimension : dimensions) {
      ASSIGN_OR_RETURN(dimension, ReadWord());
    }
    return absl::OkStatus();
  }

  // That the file can hold `bytes` more at all, before memory is set aside for them.
  absl::Status CheckRoom(std::int64_t bytes) const {
    const std::size_t most = bytes_->packed() ? size() * kHighestRatio : size();
    if (static_cast<std::size_t>(bytes) <= most) return absl::OkStatus();
    return Problem(absl::StrCat("is truncated: its header promises ", bytes, " bytes of data"));
  }

  absl::Status Read(std::span<unsigned char> target) {
    while (!target.empty()) {
      const auto piece = target.first(std::min<std::size_t>(target.size(), 1 << 24));
      const auto count = bytes_->Read(piece);
      if (!count.ok() || *count < piece.size()) return Truncated(count.status());
      target = target.subspan(*count);
    }
    return absl::OkStatus();
  }

  // Reads `bytes` without keeping them: what comes before or after the wanted samples.
  absl::Status Skip(std::int64_t bytes) {
    std::array<unsigned char, 1 << 14> scrap;
    while (bytes > 0) {
      const auto piece = std::min<std::int64_t>(bytes, scrap.size());
      RETURN_IF_ERROR(Read(std::span(scrap).first(static_cast<std::size_t>(piece))));
      bytes -= piece;
    }
    return absl::OkStatus();
  }

  absl::Status ExpectEnd() {
    unsigned char extra = 0;
    // A gzip file without its checksum shows only here.
    const auto count = bytes_->Read(std::span(&extra, 1));
    if (!count.ok()) return Truncated(count.status());
    if (*count > 0) return Problem("goes on after the data that its header promises");
    return absl::OkStatus();
  }

  std::size_t size() const { return bytes_->file().size; }

  absl::Status Problem(std::string_view what) const {
    return FieldError(absl::StatusCode::kInvalidArgument, bytes_->field(),
                      absl::StrCat(path(), " ", absl::string_view(what.data(), what.size()),
                                   "; get the file again"));
  }

  const std::string& path() const { return bytes_->file().path; }

 private:
  explicit IdxFile(std::unique_ptr<Unpacker> bytes) : bytes_(std::move(bytes)) {}

  absl::StatusOr<std::uint32_t> ReadWord() {
    std::array<unsigned char, 4> bytes;
    RETURN_IF_ERROR(Read(bytes));
    return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
           std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
  }

  absl::Status Truncated(const absl::Status& status) const {
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
    return Problem(status.message().empty()
                       ? "is truncated: it ends before the data that its header promises"
                       : absl::StrCat("is damaged (", status.message(), ")"));
  }

  std::unique_ptr<Unpacker> bytes_;
};

// The samples that the job wants of a file: [offset, offset + count).
absl::StatusOr<std::int64_t> WantedCount(const v1alpha1::IdxSource& source, std::int64_t total,
                                         const std::string& file, const LoadOptions& options) {
  const std::int64_t offset = source.offset();
  const std::int64_t count = source.has_count() ? source.count() : total - offset;
  if (offset >= total || offset < 0) {
    return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat(options.path, ".offset"),
                      absl::StrCat(offset, " is beyond the ", total, " samples of ", file));
  }
  if (count < 1 || count > total - offset) {
    return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat(options.path, ".count"),
                      absl::StrCat(count, " samples from ", offset, " on are more than the ", total,
                                   " of ", file));
  }
  return count;
}

absl::Status LoadLabels(IdxFile& file, std::int64_t total, std::int64_t offset, std::int64_t count,
                        const LoadOptions& options, std::optional<std::int64_t> classes,
                        Dataset& dataset) {
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count));
  RETURN_IF_ERROR(file.CheckRoom(total));
  RETURN_IF_ERROR(file.Skip(offset));
  RETURN_IF_ERROR(file.Read(bytes));
  RETURN_IF_ERROR(file.Skip(total - offset - count));
  RETURN_IF_ERROR(file.ExpectEnd());
  std::int64_t highest = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (const absl::Status status = CheckLabel(bytes[i], classes, options); !status.ok()) {
      return FieldError(status.code(), absl::StrCat(options.path, ".labelsUri"),
                        absl::StrCat(file.path(), ": sample ", offset + i, ": ", status.message()));
    }
    highest = std::max<std::int64_t>(highest, bytes[i]);
  }
  dataset.labels.assign(bytes.begin(), bytes.end());
  ASSIGN_OR_RETURN(dataset.classes, CountClasses(highest, classes, options));
  return absl::OkStatus();
}

// All of the file is read, so that damage anywhere in it is found now and not in another job.
absl::Status LoadImages(IdxFile& file, std::int64_t total, std::int64_t offset, std::int64_t count,
                        Dataset& dataset) {
  const std::int64_t sample = dataset.SampleSize();
  std::vector<unsigned char> bytes(static_cast<std::size_t>(count * sample));
  RETURN_IF_ERROR(file.Skip(offset * sample));
  RETURN_IF_ERROR(file.Read(bytes));
  RETURN_IF_ERROR(file.Skip((total - offset - count) * sample));
  RETURN_IF_ERROR(file.ExpectEnd());
  dataset.features.resize(bytes.size());
  std::transform(bytes.begin(), bytes.end(), dataset.features.begin(),
                 [](unsigned char byte) { return static_cast<float>(byte) * kByteScale; });
  return absl::OkStatus();
}

absl::Status CheckImages(const IdxFile& file, std::span<const std::int64_t, 3> images,
                         std::int64_t labels) {
  const auto [total, rows, columns] = std::array{images[0], images[1], images[2]};
  if (total != labels) {
    return file.Problem(absl::StrCat("has ", total, " images, but labelsUri has ", labels,
                                     " labels: they do not belong together"));
  }
  if (total == 0) return file.Problem("holds no images");
  if (rows < 1 || columns < 1 || rows > kMaxSide || columns > kMaxSide || total > kMaxSamples ||
      total > kMaxFloats / (rows * columns)) {
    return file.Problem(absl::StrCat("promises ", total, " images of ", rows, " by ", columns,
                                     ", which is not possible here"));
  }
  return file.CheckRoom(total * rows * columns);
}

}  // namespace

absl::StatusOr<Loaded> LoadIdx(const v1alpha1::IdxSource& source, const LoadOptions& options) {
  ASSIGN_OR_RETURN(IdxFile images,
                   IdxFile::Open(source.images_uri(), absl::StrCat(options.path, ".imagesUri")));
  std::optional<IdxFile> labels;
  if (options.labels) {
    ASSIGN_OR_RETURN(labels,
                     IdxFile::Open(source.labels_uri(), absl::StrCat(options.path, ".labelsUri")));
  }
  std::array<std::int64_t, 3> dimensions{};
  std::array<std::int64_t, 1> label_count{};
  RETURN_IF_ERROR(images.ReadHeader(kImagesMagic, dimensions));
  if (labels) RETURN_IF_ERROR(labels->ReadHeader(kLabelsMagic, label_count));
  RETURN_IF_ERROR(CheckImages(images, dimensions, labels ? label_count[0] : dimensions[0]));
  const std::int64_t total = dimensions[0];
  ASSIGN_OR_RETURN(const std::int64_t count, WantedCount(source, total, images.path(), options));
  Loaded loaded;
  loaded.per_feature = false;
  loaded.dataset.shape = {1, dimensions[1], dimensions[2]};
  const auto classes =
      source.has_classes() ? std::optional<std::int64_t>(source.classes()) : std::nullopt;
  if (labels) {
    RETURN_IF_ERROR(
        LoadLabels(*labels, total, source.offset(), count, options, classes, loaded.dataset));
  } else {
    loaded.dataset.labels.assign(static_cast<std::size_t>(count), 0);
  }
  loaded.whole = images.size() <= options.max_bytes;
  if (loaded.whole) {
    RETURN_IF_ERROR(LoadImages(images, total, source.offset(), count, loaded.dataset));
  }
  return loaded;
}

}  // namespace starling::data

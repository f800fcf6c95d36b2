// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/source.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "common/storage/place.h"
#include "trainer/data/object_cache.h"

namespace starling::data {
namespace {

constexpr std::size_t kQuoteLimit = 40;

// What the store said about the file, with the field's name and remedy.
absl::Status FileError(const absl::Status& status, const std::string& path,
                       std::string_view field) {
  const auto say = [&](std::string_view what) {
    return FieldError(status.code(), field, absl::StrCat(path, ": ", ToAbsl(what)));
  };
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      // The path is whole by now, wherever the job's own begins.
      return say(absl::StrCat("there is no such file; check the ",
                              path.find("://") != std::string::npos ? "URI" : "path"));
    case absl::StatusCode::kInvalidArgument:
      return say("this is not a regular file; name the file itself");
    case absl::StatusCode::kOutOfRange:
      return FieldError(absl::StatusCode::kDataLoss, field,
                        absl::StrCat(path,
                                     ": the file became shorter while it was read; leave it "
                                     "alone while jobs use it"));
    default:
      return FieldError(status.code(), field, std::string(status.message()));
  }
}

}  // namespace

absl::Status FieldError(absl::StatusCode code, std::string_view field, std::string_view message) {
  return absl::Status(code, absl::StrCat(ToAbsl(field), ": ", ToAbsl(message)));
}

absl::Status CheckLabel(std::int64_t label, std::optional<std::int64_t> own_classes,
                        const LoadOptions& options) {
  const std::int64_t limit = own_classes.value_or(options.classes.value_or(kMaxClasses));
  if (label >= 0 && label < limit) return absl::OkStatus();
  const std::string_view whose = own_classes.has_value()       ? " classes that the job file gives"
                                 : options.classes.has_value() ? " classes of the training set"
                                                               : " classes that are supported";
  return absl::InvalidArgumentError(absl::StrCat("label ", label, " is out of range; with the ",
                                                 limit, ToAbsl(whose), " it must be 0 to ",
                                                 limit - 1));
}

absl::StatusOr<std::int64_t> CountClasses(std::int64_t highest,
                                          std::optional<std::int64_t> own_classes,
                                          const LoadOptions& options) {
  if (options.classes.has_value()) {
    if (own_classes.has_value() && *own_classes != *options.classes) {
      return FieldError(absl::StatusCode::kInvalidArgument, absl::StrCat(options.path, ".classes"),
                        absl::StrCat("is ", *own_classes, ", but the training set has ",
                                     *options.classes, " classes; leave it out here"));
    }
    return *options.classes;
  }
  return own_classes.value_or(std::max<std::int64_t>(2, highest + 1));
}

absl::StatusOr<FileInfo> Inspect(std::string_view uri, std::string_view field) {
  absl::StatusOr<std::shared_ptr<storage::BlobStore>> store =
      storage::Open(storage::SplitUri(uri).folder);
  return Inspect(uri, field, store);
}

absl::StatusOr<FileInfo> Inspect(std::string_view uri, std::string_view field,
                                 const absl::StatusOr<std::shared_ptr<storage::BlobStore>>& store) {
  auto name = storage::BlobNameOf(uri);
  const absl::Status located = name.ok() ? store.status() : name.status();
  if (!located.ok()) {
    // A place that is none, or one that cannot be asked: what else is wrong stands in a variable.
    const bool of_uri = absl::IsInvalidArgument(located);
    return FieldError(located.code(), field,
                      absl::StrCat(Quote(uri), of_uri ? " " : ": ", located.message()));
  }
  FileInfo file;
  storage::Place place = *storage::ParsePlace(uri);
  file.path = place.kind == storage::Place::Kind::kFile ? std::move(place.path) : std::string(uri);
  file.name = *std::move(name);
  file.store = *store;
  auto info = file.store->Look(file.name);
  if (!info.ok()) return FileError(info.status(), file.path, field);
  file.size = info->size;
  file.version = std::move(info->version);
  if (file.size == 0) {
    return FieldError(absl::StatusCode::kInvalidArgument, field,
                      absl::StrCat(file.path, ": the file is empty; it must hold samples"));
  }
  if (file.size > kMaxFileBytes) {
    return FieldError(absl::StatusCode::kInvalidArgument, field,
                      absl::StrCat(file.path, ": the file has ", file.size, " bytes, more than ",
                                   kMaxFileBytes, "; split it or use fewer samples"));
  }
  return file;
}

absl::Status ReadRange(const FileInfo& file, std::size_t offset, std::span<std::byte> into,
                       std::string_view field, ObjectCache* cache) {
  const absl::Status status = cache == nullptr
                                  ? file.store->Read(file.name, offset, into)
                                  : cache->Read(*file.store, file.name, file.version, offset, into);
  return status.ok() ? status : FileError(status, file.path, field);
}

absl::StatusOr<std::string> ReadStart(const FileInfo& file, std::size_t limit,
                                      std::string_view field) {
  std::string content(std::min(limit, file.size), '\0');
  RETURN_IF_ERROR(ReadRange(file, 0, std::as_writable_bytes(std::span(content)), field));
  return content;
}

std::string Quote(std::string_view text) {
  const bool cut = text.size() > kQuoteLimit;
  return absl::StrCat("\"", absl::CHexEscape(ToAbsl(text.substr(0, kQuoteLimit))),
                      cut ? "...\"" : "\"");
}

}  // namespace starling::data

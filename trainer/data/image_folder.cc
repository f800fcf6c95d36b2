// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/image_folder.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "common/storage/blob_store.h"
#include "common/storage/place.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/data/bad_records.h"
#include "trainer/data/object_cache.h"
#include "trainer/image/decode.h"

namespace starling::data {
namespace {

constexpr std::string_view kEndings[] = {".jpg", ".jpeg", ".png"};

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

// Thread-safe.
class FolderFiles final : public ImageFiles {
 public:
  struct Parts {
    std::string field;   // of the job file: spec.dataset.train.imageFolder.uri
    std::string folder;  // for messages
    std::shared_ptr<storage::BlobStore> store;
    ImageIndex index;
    std::shared_ptr<ObjectCache> cache;  // may be null
  };
  explicit FolderFiles(Parts parts) : parts_(std::move(parts)) {}

  std::int64_t size() const override { return parts_.index.size(); }
  std::int64_t LabelOf(std::int64_t image) const override { return parts_.index.LabelOf(image); }
  std::string PathOf(std::int64_t image) const override {
    return absl::StrCat(parts_.folder, "/", ToAbsl(parts_.index.NameOf(image)));
  }
  std::string Digest() const override { return parts_.index.Digest(); }

  absl::StatusOr<std::vector<std::byte>> Read(std::int64_t image) const override {
    const std::string name(parts_.index.NameOf(image));
    auto file = ReadFile(name);
    if (file.ok()) return file;
    if (absl::IsOutOfRange(file.status())) {
      return FieldError(absl::StatusCode::kInvalidArgument, parts_.field,
                        absl::StrCat(PathOf(image), " has more than ", image::kMaxFileBytes,
                                     " bytes, or changed while it was read"));
    }
    const auto code =
        absl::IsInvalidArgument(file.status()) ? absl::StatusCode::kDataLoss : file.status().code();
    return FieldError(code, parts_.field, std::string(file.status().message()));
  }

 private:
  absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& name) const {
    if (parts_.cache == nullptr) {
      return storage::ReadAll(*parts_.store, name, image::kMaxFileBytes);
    }
    // The store is asked each time whether it is still the same.
    ASSIGN_OR_RETURN(const storage::BlobInfo info, parts_.store->Look(name));
    if (info.size > image::kMaxFileBytes) return absl::OutOfRangeError("");
    std::vector<std::byte> content(info.size);
    RETURN_IF_ERROR(parts_.cache->Read(*parts_.store, name, info.version, 0, content));
    return content;
  }

  const Parts parts_;
};

std::string FolderOf(const std::string& uri) {
  const auto place = storage::ParsePlace(uri);
  std::string folder = place.ok() && place->kind == storage::Place::Kind::kFile ? place->path : uri;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

constexpr char kNoImages[] = "holds no images (.jpg, .jpeg, .png)";

// The store of a folder.
absl::StatusOr<std::shared_ptr<storage::BlobStore>> OpenFolder(const std::string& uri,
                                                               const std::string& field) {
  auto store = storage::Open(uri);
  if (store.ok()) return store;
  return FieldError(store.status().code(), field,
                    absl::StrCat(Quote(uri), ": ", store.status().message()));
}

absl::StatusOr<std::vector<std::string>> NamesIn(storage::BlobStore& store,
                                                 const std::string& field) {
  auto names = store.List("");
  if (names.ok()) return names;
  return FieldError(names.status().code(), field, std::string(names.status().message()));
}

}  // namespace

bool IsImage(std::string_view name) {
  if (name.starts_with('.') || name.find("/.") != std::string_view::npos) return false;
  return std::ranges::any_of(kEndings, [name](std::string_view ending) {
    return absl::EndsWithIgnoreCase(ToAbsl(name), ToAbsl(ending));
  });
}

std::string ImageIndex::Digest() const {
  bytes::Sha256 digest;
  names_.AddTo(digest);
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
    index.names_.Add(name);
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

ImageIndex ImageIndex::WithoutClasses(const std::vector<std::string>& names) {
  ImageIndex index;
  for (const std::string& name : names) {
    if (!IsImage(name)) continue;
    index.names_.Add(name);
    index.labels_.push_back(0);
  }
  return index;
}

absl::StatusOr<Loaded> LoadImageFolder(const v1alpha1::ImageFolderSource& source,
                                       const LoadOptions& options, bool validation) {
  ASSIGN_OR_RETURN(ImageSettings settings, ImageSettingsOf(source, options, validation));
  FolderFiles::Parts parts;
  parts.field = options.path + ".uri";
  parts.folder = FolderOf(source.uri());
  ASSIGN_OR_RETURN(parts.store, OpenFolder(source.uri(), parts.field));
  parts.cache = options.cache;
  ASSIGN_OR_RETURN(const std::vector<std::string> names, NamesIn(*parts.store, parts.field));
  absl::StatusOr<ImageIndex> index = options.unlabelled
                                         ? ImageIndex::WithoutClasses(names)
                                         : ImageIndex::Of(names, options.class_names);
  if (options.unlabelled && index->size() == 0) index = absl::InvalidArgumentError(kNoImages);
  if (!index.ok()) {
    return FieldError(index.status().code(), parts.field,
                      absl::StrCat(parts.folder, names.empty() ? ": is not there, or" : ":", " ",
                                   index.status().message()));
  }
  const std::vector<std::string> classes = index->classes();
  const auto count = static_cast<std::int64_t>(classes.size());
  if (options.classes.has_value() && *options.classes != count) {
    return FieldError(absl::StatusCode::kInvalidArgument, parts.field,
                      absl::StrCat(parts.folder, ": has ", count,
                                   " folders with images, but the training set has ",
                                   *options.classes, " classes; make them equal"));
  }
  parts.index = *std::move(index);
  Loaded loaded = LoadImages(std::make_unique<FolderFiles>(std::move(parts)), std::move(settings),
                             std::make_shared<BadRecords>(options.dataset));
  loaded.dataset.class_names = classes;
  loaded.dataset.classes = count;
  return loaded;
}

absl::StatusOr<LooseImages> LoadLooseImages(const std::string& uri, const std::string& field,
                                            const std::vector<std::int64_t>& shape) {
  RETURN_IF_ERROR(CheckImageShape(shape, field));
  FolderFiles::Parts parts;
  parts.field = field;
  std::vector<std::string> names;
  if (IsImage(uri.substr(uri.rfind('/') + 1))) {
    ASSIGN_OR_RETURN(FileInfo file, Inspect(uri, field));
    names = {file.name};
    parts.folder = FolderOf(file.path.substr(0, file.path.rfind('/')));
    parts.store = std::move(file.store);
  } else {
    parts.folder = FolderOf(uri);
    ASSIGN_OR_RETURN(parts.store, OpenFolder(uri, field));
    ASSIGN_OR_RETURN(names, NamesIn(*parts.store, field));
  }
  parts.index = ImageIndex::WithoutClasses(names);
  if (parts.index.size() == 0) {
    return FieldError(absl::StatusCode::kInvalidArgument, field,
                      absl::StrCat(parts.folder, ": is not there, or ", kNoImages));
  }
  LooseImages images;
  for (std::int64_t i = 0; i < parts.index.size(); ++i) {
    images.names.emplace_back(parts.index.NameOf(i));
  }
  ImageSettings settings;
  settings.field = field;
  settings.channels = static_cast<int>(shape[0]);
  settings.shape = {.width = shape[2], .height = shape[1]};
  images.loaded = LoadImages(std::make_unique<FolderFiles>(std::move(parts)), std::move(settings),
                             std::make_shared<BadRecords>(nullptr));
  return images;
}

}  // namespace starling::data

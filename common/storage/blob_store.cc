// SPDX-License-Identifier: Apache-2.0
#include "common/storage/blob_store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/storage/file_blob_store.h"

namespace starling::storage {
namespace {

constexpr std::size_t kLongestName = 1024;
constexpr std::size_t kLongestPart = 255;

}  // namespace

absl::Status CheckName(std::string_view name) {
  bool good = !name.empty() && name.size() <= kLongestName;
  for (const unsigned char c : name) good = good && c >= 0x20 && c != 0x7f;
  for (std::size_t begin = 0; good && begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    good = !part.empty() && part.size() <= kLongestPart && part != "." && part != ".." &&
           (begin > 0 || part != kTemporaryFolder);
    begin = end + 1;
  }
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a blob cannot be named \"",
      absl::string_view(name.data(), std::min<std::size_t>(name.size(), 80)),
      "\"; give 1 to 1024 bytes in parts of up to 255 without control characters, none of them "
      "\".\" or \"..\""));
}

absl::StatusOr<BlobInfo> BlobStore::Look(const std::string& name) {
  ASSIGN_OR_RETURN(const std::size_t size, Size(name));
  return BlobInfo{size};
}

absl::StatusOr<std::vector<std::byte>> ReadAll(BlobStore& store, const std::string& name,
                                               std::size_t limit) {
  ASSIGN_OR_RETURN(const std::size_t size, store.Size(name));
  if (size > limit) {
    return absl::OutOfRangeError(absl::StrCat(store.UriOf(name), " has ", size,
                                              " bytes, more than the ", limit, " expected"));
  }
  std::vector<std::byte> content(size);
  RETURN_IF_ERROR(store.Read(name, 0, content));
  return content;
}

absl::Status Put(BlobStore& store, const std::string& name, std::string_view text,
                 IfPresent if_present) {
  const std::span<const std::byte> piece = bytes::View(text);
  return store.Put(name, std::span(&piece, 1), if_present);
}

}  // namespace starling::storage

// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/object_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/bytes/bytes.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "common/storage/file.h"

namespace starling::data {
namespace {

using storage::File;
using storage::WriteAll;
namespace fs = std::filesystem;

constexpr std::string_view kLockFile = ".lock";
constexpr std::string_view kNewFile = ".new";          // before it has its name
constexpr absl::Duration kSilence = absl::Minutes(1);  // after a failure, before the next try
constexpr std::size_t kDigestBytes = sizeof(bytes::Digest);

absl::Status Failed(std::string_view what, const std::string& path) {
  const int error = errno;
  const auto code = error == ENOSPC || error == EDQUOT ? absl::StatusCode::kResourceExhausted
                                                       : absl::StatusCode::kUnavailable;
  return absl::Status(
      code, absl::StrCat("cannot ", std::string(what), " ", path, ": ", std::strerror(error)));
}

bool ReadAt(int file, std::uint64_t offset, std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t count = ::pread(file, into.data(), into.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    offset += static_cast<std::uint64_t>(count);
    into = into.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// The file was used now. The kernel's own time of a file moves in steps of milliseconds.
void Touch(int file) {
  const timespec now = absl::ToTimespec(absl::Now());
  const timespec both[] = {now, now};
  ::futimens(file, both);
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return absl::OkStatus();
  errno = error.value();
  return Failed("make the folder", path);
}

}  // namespace

// A file of the folder.
struct ObjectCache::Entry {
  absl::Time used;
  std::uint64_t size = 0;
  std::string path;
};

// The folder's lock, held until it goes, and the number of bytes that stands in its file.
class ObjectCache::Lock {
 public:
  explicit Lock(const std::string& folder)
      : path_(absl::StrCat(folder, "/", std::string(kLockFile))), file_(path_, O_RDWR | O_CREAT) {
    while (file_.get() >= 0 && ::flock(file_.get(), LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  absl::Status status() const {
    return file_.get() >= 0 ? absl::OkStatus() : Failed("open", path_);
  }

  // None: nobody has counted yet.
  std::optional<std::uint64_t> Count() const {
    std::uint64_t count = 0;
    if (!ReadAt(file_.get(), 0, std::as_writable_bytes(std::span(&count, 1)))) return std::nullopt;
    return count;
  }
  absl::Status SetCount(std::uint64_t count) {
    if (::pwrite(file_.get(), &count, sizeof(count), 0) == sizeof(count)) return absl::OkStatus();
    return Failed("write", path_);
  }

 private:
  const std::string path_;
  File file_;  // closing it gives the lock back
};

ObjectCache::ObjectCache(std::string folder, std::uint64_t most_bytes)
    : folder_(std::move(folder)), most_(most_bytes), began_(absl::Now()) {}

std::string ObjectCache::PathOf(const std::string& key) const {
  return absl::StrCat(folder_, "/", key.substr(0, 2), "/", key.substr(2));
}

absl::Status ObjectCache::Read(storage::BlobStore& store, const std::string& name,
                               std::string_view version, std::uint64_t offset,
                               std::span<std::byte> into) {
  if (version.empty() || into.empty()) return store.Read(name, offset, into);
  const std::string path = PathOf(bytes::Sha256Hex(absl::StrCat(
      store.UriOf(name), "\n", std::string(version), "\n", offset, "\n", into.size())));
  if (Find(path, into)) return absl::OkStatus();
  RETURN_IF_ERROR(store.Read(name, offset, into));
  Keep(path, into);
  return absl::OkStatus();
}

bool ObjectCache::Find(const std::string& path, std::span<std::byte> into) const {
  const File file(path, O_RDONLY);
  if (file.get() < 0) return false;
  struct stat info {};
  bytes::Digest digest;
  const bool whole = ::fstat(file.get(), &info) == 0 &&
                     static_cast<std::uint64_t>(info.st_size) == into.size() + kDigestBytes &&
                     ReadAt(file.get(), 0, into) &&
                     ReadAt(file.get(), into.size(), std::as_writable_bytes(std::span(digest))) &&
                     bytes::Sha256Of(into) == digest;
  if (!whole) {
    ::unlink(path.c_str());
    return false;
  }
  Touch(file.get());
  return true;
}

void ObjectCache::Keep(const std::string& path, std::span<const std::byte> content) {
  if (full_ || content.size() + kDigestBytes > most_) return;
  {
    const sync::MutexLock lock(mutex_);
    if (absl::Now() < silent_until_) return;
  }
  if (const absl::Status status = TryToKeep(path, content); !status.ok()) Tell(status);
}

absl::Status ObjectCache::TryToKeep(const std::string& path, std::span<const std::byte> content) {
  const std::uint64_t bytes = content.size() + kDigestBytes;
  RETURN_IF_ERROR(MakeFolder(fs::path(path).parent_path()));
  Lock lock(folder_);
  RETURN_IF_ERROR(lock.status());
  if (Exists(path)) return absl::OkStatus();  // another has kept it just now
  const std::optional<std::uint64_t> counted = lock.Count();
  std::uint64_t count = counted.value_or(most_);
  if (!counted.has_value() || count > most_ || bytes > most_ - count) {
    count = MakeRoom(bytes);
    RETURN_IF_ERROR(lock.SetCount(count));
    if (count > most_ || bytes > most_ - count) {
      full_ = true;
      return absl::OkStatus();
    }
  }
  RETURN_IF_ERROR(lock.SetCount(count + bytes));
  const absl::Status status = Write(path, content);
  if (!status.ok()) (void)lock.SetCount(count);  // else it stays too high until it is counted anew
  return status;
}

std::uint64_t ObjectCache::MakeRoom(std::uint64_t wanted) const {
  std::vector<Entry> entries;
  std::uint64_t count = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder_, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    struct stat info {};
    std::string path = entry->path().string();
    const std::string name = entry->path().filename().string();
    if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || name == kLockFile ||
        name == kNewFile) {
      continue;
    }
    const auto size = static_cast<std::uint64_t>(info.st_size);
    const absl::Time used = absl::TimeFromTimespec(info.st_mtim);
    count += size;
    if (used < began_) entries.push_back({used, size, std::move(path)});
  }
  std::ranges::sort(entries, {}, &Entry::used);
  // A tenth of all at least, so that it is not counted again for each.
  const std::uint64_t goal = most_ - std::min(most_, std::max(wanted, most_ / 10));
  for (const Entry& entry : entries) {
    if (count <= goal) break;
    if (::unlink(entry.path.c_str()) == 0) count -= std::min(count, entry.size);
  }
  return count;
}

// Under the lock, so that nobody else writes the new file.
absl::Status ObjectCache::Write(const std::string& path, std::span<const std::byte> content) const {
  const std::string fresh = absl::StrCat(folder_, "/", std::string(kNewFile));
  const bytes::Digest digest = bytes::Sha256Of(content);
  File file(fresh, O_WRONLY | O_CREAT | O_TRUNC);
  absl::Status status;
  if (file.get() < 0) {
    status = Failed("make", fresh);
  } else if (!WriteAll(file.get(), content) ||
             !WriteAll(file.get(), std::as_bytes(std::span(digest)))) {
    status = Failed("write", fresh);
  } else {
    Touch(file.get());
    if (file.Close() != 0 || ::rename(fresh.c_str(), path.c_str()) != 0) {
      status = Failed("write", path);
    }
  }
  if (!status.ok()) ::unlink(fresh.c_str());
  return status;
}

void ObjectCache::Tell(const absl::Status& problem) {
  const sync::MutexLock lock(mutex_);
  const bool first = silent_until_ == absl::InfinitePast();
  silent_until_ = absl::Now() + kSilence;
  if (!first) return;
  log::Warning("the cache of data cannot be written; what it lacks is read from afar each time",
               {{"folder", folder_},
                {"reason", problem.message()},
                {"remedy", "make space there, or lower dataset.cache.maxBytes"}});
}

}  // namespace starling::data

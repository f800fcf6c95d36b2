// SPDX-License-Identifier: Apache-2.0
#include "common/storage/file_blob_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "common/status/to_absl.h"
#include "common/storage/file.h"
#include "common/storage/place.h"

namespace starling::storage {
namespace {

namespace fs = std::filesystem;

// A folder that is being made may be removed by another, being empty. Each time it happens another
// has made progress, so that many tries end; few are too few where many write and delete.
constexpr int kTries = 100;
constexpr std::time_t kLeftoverSeconds = 3600;

absl::Status Failed(std::string_view what, const std::string& path, int error) {
  const auto say = [&](std::string_view remedy) {
    return absl::StrCat("cannot ", ToAbsl(what), " ", path, ": ", std::strerror(error),
                        ToAbsl(remedy));
  };
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(say("; make space there"));
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(say("; give this user the right to it"));
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(say("; check the path"));
    case EEXIST:
      return absl::AlreadyExistsError(say(""));
    case EISDIR:
      return absl::InvalidArgumentError(say("; name the file itself"));
    // These say nothing about what is on the disk.
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case EINTR:
    case ETIMEDOUT:
    case ESTALE:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENOTCONN:
      return absl::UnavailableError(say("; try again"));
    default:
      return absl::DataLossError(say("; look at the disk"));
  }
}

absl::Status SyncFolder(const std::string& path) {
  const File folder(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY);
  if (folder.get() < 0) return Failed("open the folder", path, errno);
  if (::fsync(folder.get()) != 0) return Failed("sync the folder", path, errno);
  return absl::OkStatus();
}

// Of a path whose end may be a slash.
std::string ParentOf(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return fs::path(path).parent_path().string();
}

// Makes the folder and those above it. What is made here is synced here.
absl::Status MakeFolder(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
  const std::string parent = ParentOf(path);
  if (!parent.empty() && parent != path) RETURN_IF_ERROR(MakeFolder(parent));
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno != EEXIST) return Failed("make the folder", path, errno);
    // Another has just made it; or a file has its name, which must show before anything is written.
    if (::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) {
      return Failed("make the folder", path, ENOTDIR);
    }
  }
  return SyncFolder(parent);
}

absl::Status WriteFile(const std::string& path, Pieces pieces) {
  File file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.get() < 0) return Failed("make", path, errno);
  for (const std::span<const std::byte> piece : pieces) {
    if (!WriteAll(file.get(), piece)) return Failed("write", path, errno);
  }
  if (::fsync(file.get()) != 0) return Failed("sync", path, errno);
  if (file.Close() != 0) return Failed("close", path, errno);
  return absl::OkStatus();
}

// Gives the file its name. A link fails where the name is taken, which a rename does not.
absl::Status Name(const std::string& from, const std::string& to, IfPresent if_present) {
  if (if_present == IfPresent::kReplace) {
    if (::rename(from.c_str(), to.c_str()) != 0) return Failed("write", to, errno);
    return absl::OkStatus();
  }
  // Not every file system has both.
  const bool named =
      ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0 ||
      (errno == EINVAL && ::link(from.c_str(), to.c_str()) == 0);
  if (!named) return Failed("make", to, errno);
  ::unlink(from.c_str());
  return absl::OkStatus();
}

std::string WithSlash(std::string path) {
  if (path.empty() || path.back() != '/') path += '/';
  return path;
}

}  // namespace

absl::Status SyncAbove(const std::string& path) {
  std::string folder = path;
  for (std::string parent = ParentOf(folder); parent != folder; parent = ParentOf(folder)) {
    const File file(parent.empty() ? "." : parent, O_RDONLY | O_DIRECTORY);
    if (file.get() < 0 || ::fsync(file.get()) != 0) {
      // He may not read it, or the file system is read-only or knows no syncing.
      const bool not_ours = errno == EACCES || errno == EPERM || errno == EROFS || errno == EINVAL;
      return not_ours ? absl::OkStatus() : Failed("sync the folder", parent, errno);
    }
    folder = parent;
  }
  return absl::OkStatus();
}

FileBlobStore::FileBlobStore(std::string root) : root_(WithSlash(std::move(root))) {}

std::string FileBlobStore::UriOf(std::string_view name) const {
  return FileUri(absl::StrCat(root_, ToAbsl(name)));
}

void FileBlobStore::RemoveLeftovers() {
  if (has_removed_leftovers_.exchange(true)) return;
  std::error_code error;
  fs::directory_iterator entry(absl::StrCat(root_, ToAbsl(kTemporaryFolder)), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    struct stat info {};
    const std::string path = entry->path().string();
    if (::stat(path.c_str(), &info) != 0) continue;
    if (std::time(nullptr) - info.st_mtime > kLeftoverSeconds) ::unlink(path.c_str());
  }
}

absl::Status FileBlobStore::PutOnce(const std::string& path, Pieces pieces, IfPresent if_present) {
  const std::string folder = ParentOf(path);
  const std::string temporaries = absl::StrCat(root_, ToAbsl(kTemporaryFolder));
  const std::string temporary = absl::StrCat(temporaries, "/", bytes::RandomUuid());
  RETURN_IF_ERROR(MakeFolder(folder));
  if (::mkdir(temporaries.c_str(), 0755) != 0 && errno != EEXIST) {
    return Failed("make the folder", temporaries, errno);
  }
  RemoveLeftovers();
  absl::Status status = WriteFile(temporary, pieces);
  if (status.ok()) status = Name(temporary, path, if_present);
  if (!status.ok()) ::unlink(temporary.c_str());
  ::rmdir(temporaries.c_str());  // if nobody else is writing
  RETURN_IF_ERROR(status);
  // Another process may have made any of these folders just now, and not have synced it yet, or
  // ever: the blob lasts only if all of them do. Syncing what nobody has changed costs little.
  std::string synced = folder;
  for (;; synced = ParentOf(synced)) {
    RETURN_IF_ERROR(SyncFolder(synced));
    if (synced.size() < std::max<std::size_t>(root_.size(), 2)) break;  // the root
  }
  if (has_synced_above_) return absl::OkStatus();  // nobody removes the root
  RETURN_IF_ERROR(SyncAbove(synced));
  has_synced_above_ = true;
  return absl::OkStatus();
}

absl::Status FileBlobStore::Put(const std::string& name, Pieces pieces, IfPresent if_present) {
  RETURN_IF_ERROR(CheckName(name));
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    status = PutOnce(root_ + name, pieces, if_present);
    if (!absl::IsNotFound(status)) break;
  }
  return status;
}

absl::StatusOr<std::size_t> FileBlobStore::Size(const std::string& name) {
  RETURN_IF_ERROR(CheckName(name));
  const std::string path = root_ + name;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return Failed("find", path, errno);
  if (!S_ISREG(info.st_mode)) return Failed("read", path, EISDIR);
  return static_cast<std::size_t>(info.st_size);
}

absl::Status FileBlobStore::Read(const std::string& name, std::size_t offset,
                                 std::span<std::byte> into) {
  RETURN_IF_ERROR(CheckName(name));
  const std::string path = root_ + name;
  const File file(path, O_RDONLY | O_NONBLOCK);  // a pipe must not hold us
  if (file.get() < 0) return Failed("open", path, errno);
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return Failed("look at", path, errno);
  if (!S_ISREG(info.st_mode)) return Failed("read", path, EISDIR);
  while (!into.empty()) {
    const ssize_t count = ::pread(file.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Failed("read", path, errno);
    if (count == 0) {
      return absl::OutOfRangeError(
          absl::StrCat(path, " ends at byte ", offset, ", before the ", into.size(),
                       " bytes that are still wanted; leave it alone while it is read"));
    }
    offset += static_cast<std::size_t>(count);
    into = into.subspan(static_cast<std::size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status FileBlobStore::Delete(const std::string& name) {
  RETURN_IF_ERROR(CheckName(name));
  const std::string path = root_ + name;
  if (::unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    return Failed("remove", path, errno);
  }
  // Folders that are empty now go too, up to the root; one that is not stays, with all above it.
  for (std::string folder = ParentOf(path); folder.size() + 1 > root_.size();
       folder = ParentOf(folder)) {
    if (::rmdir(folder.c_str()) != 0) break;
  }
  return absl::OkStatus();
}

// `folder` is relative to the root: empty, or with a slash at its end.
absl::Status FileBlobStore::Walk(const std::string& folder, const std::string& prefix,
                                 std::vector<std::string>& names) const {
  std::error_code error;
  fs::directory_iterator entry(root_ + folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = folder + entry->path().filename().string();
    if (!CheckName(name).ok()) continue;  // .tmp, for one
    std::error_code gone;
    if (fs::is_directory(entry->symlink_status(gone))) {
      const std::string below = name + "/";
      if (absl::StartsWith(below, prefix) || absl::StartsWith(prefix, below)) {
        RETURN_IF_ERROR(Walk(below, prefix, names));
      }
    } else if (absl::StartsWith(name, prefix) && fs::is_regular_file(entry->status(gone))) {
      names.push_back(name);
    }
  }
  // It may be gone by now, or never have been there.
  if (error && error.value() != ENOENT && error.value() != ENOTDIR) {
    return Failed("list", root_ + folder, error.value());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> FileBlobStore::List(const std::string& prefix) {
  std::vector<std::string> names;
  RETURN_IF_ERROR(Walk("", prefix, names));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace starling::storage

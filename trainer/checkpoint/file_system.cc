// SPDX-License-Identifier: Apache-2.0
#include "trainer/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::checkpoint {
namespace {

absl::Status Failed(std::string_view what, const std::string& path, int error) {
  const std::string message = absl::StrCat("cannot ", absl::string_view(what.data(), what.size()),
                                           " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOENT:
      return absl::NotFoundError(message);
    case EEXIST:
    case ENOTEMPTY:
      return absl::AlreadyExistsError(message);
    default:
      return absl::DataLossError(message);
  }
}

// Closes what it holds. Confined to one call.
class File {
 public:
  File(const std::string& path, int flags) : file_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~File() {
    if (file_ >= 0) ::close(file_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return file_; }
  int Close() { return ::close(std::exchange(file_, -1)); }

 private:
  int file_;
};

// Thread-safe: it has no state.
class PosixFileSystem final : public FileSystem {
 public:
  absl::Status MakeFolder(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
    const std::string parent = std::filesystem::path(path).parent_path().string();
    if (!parent.empty() && parent != path) RETURN_IF_ERROR(MakeFolder(parent));
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) {
      return Failed("make the folder", path, errno);
    }
    return parent.empty() ? absl::OkStatus() : SyncFolder(parent);
  }

  absl::Status WriteFile(const std::string& path,
                         std::span<const std::span<const std::byte>> pieces) override {
    File file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file.get() < 0) return Failed("make", path, errno);
    for (std::span<const std::byte> piece : pieces) {
      while (!piece.empty()) {
        const ssize_t count = ::write(file.get(), piece.data(), piece.size());
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return Failed("write", path, errno);
        piece = piece.subspan(static_cast<std::size_t>(count));
      }
    }
    if (::fsync(file.get()) != 0) return Failed("sync", path, errno);
    if (file.Close() != 0) return Failed("close", path, errno);
    return absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string& path) override {
    File folder(path, O_RDONLY | O_DIRECTORY);
    if (folder.get() < 0) return Failed("open the folder", path, errno);
    if (::fsync(folder.get()) != 0) return Failed("sync the folder", path, errno);
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return Failed("rename to", to, errno);
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    return error ? Failed("remove", path, error.value()) : absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator entry(path, error);
    if (error.value() == ENOENT) return names;
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      names.push_back(entry->path().filename().string());
    }
    if (error) return Failed("list", path, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path,
                                                  std::size_t limit) override {
    File file(path, O_RDONLY);
    struct stat info {};
    if (file.get() < 0) return Failed("open", path, errno);
    if (::fstat(file.get(), &info) != 0) return Failed("look at", path, errno);
    if (!S_ISREG(info.st_mode)) return Failed("read", path, EISDIR);
    if (static_cast<std::size_t>(info.st_size) > limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, " has ", info.st_size, " bytes, more than the ", limit, " expected"));
    }
    std::vector<std::byte> content(static_cast<std::size_t>(info.st_size));
    std::size_t done = 0;
    while (done < content.size()) {
      const ssize_t count = ::read(file.get(), content.data() + done, content.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return Failed("read", path, errno);
      if (count == 0) return absl::DataLossError(absl::StrCat(path, " ended while it was read"));
      done += static_cast<std::size_t>(count);
    }
    return content;
  }
};

}  // namespace

std::unique_ptr<FileSystem> MakePosixFileSystem() { return std::make_unique<PosixFileSystem>(); }

}  // namespace starling::checkpoint

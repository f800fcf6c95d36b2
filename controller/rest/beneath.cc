// SPDX-License-Identifier: Apache-2.0
#include "controller/rest/beneath.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace starling::service {
namespace {

constexpr std::size_t kFilePiece = 64 << 10;
// A FIFO must not make us wait for somebody to write to it.
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;

absl::Status Failure(const std::string& relative) {
  const int error = errno;
  if (error == ENOENT || error == ENOTDIR) {
    return absl::NotFoundError(absl::StrCat("there is no file ", relative));
  }
  if (error == ELOOP || error == EXDEV || error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(
        absl::StrCat("the file ", relative, " is not a plain one of the job's folder"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot open ", relative));
}

// Of kernels without openat2, and where a sandbox does not know it.
int OpenStepwise(int folder, const std::string& relative) {
  const std::vector<std::string> parts = absl::StrSplit(relative, '/', absl::SkipEmpty());
  int at = ::fcntl(folder, F_DUPFD_CLOEXEC, 0);
  for (std::size_t i = 0; i < parts.size() && at >= 0; ++i) {
    int next = -1;
    if (parts[i] == "..") {
      errno = EXDEV;
    } else {
      next = ::openat(at, parts[i].c_str(), kFlags | (i + 1 < parts.size() ? O_DIRECTORY : 0));
    }
    const int error = errno;
    ::close(at);
    errno = error;
    at = next;
  }
  return at;
}

int OpenAt(int folder, const std::string& relative) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(kFlags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  const long file = ::syscall(SYS_openat2, folder, relative.c_str(), &how, sizeof(how));
  if (file >= 0 || (errno != ENOSYS && errno != EPERM)) return static_cast<int>(file);
  return OpenStepwise(folder, relative);
}

class FileStream final : public http::BodyStream {
 public:
  FileStream(OpenFile file, std::uint64_t offset, std::uint64_t length)
      : file_(std::move(file)), offset_(offset), length_(length), left_(length) {}

  Piece Next() override {
    Piece piece;
    piece.bytes.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left_, kFilePiece)));
    const ssize_t got = ::pread(file_.file.get(), piece.bytes.data(), piece.bytes.size(),
                                static_cast<off_t>(offset_));
    if (got < 0 || (got == 0 && left_ > 0)) throw std::runtime_error("the file became shorter");
    piece.bytes.resize(static_cast<std::size_t>(got));
    offset_ += static_cast<std::uint64_t>(got);
    left_ -= static_cast<std::uint64_t>(got);
    piece.ended = left_ == 0;
    return piece;
  }
  std::optional<std::uint64_t> Length() const override { return length_; }
  bool ReadsFiles() const override { return true; }

 private:
  const OpenFile file_;
  std::uint64_t offset_;
  const std::uint64_t length_;
  std::uint64_t left_;
};

}  // namespace

absl::StatusOr<OpenFile> OpenBeneath(const std::string& folder, const std::string& relative) {
  const net::FileDescriptor at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0) return Failure(relative);
  OpenFile opened{net::FileDescriptor(OpenAt(at.get(), relative))};
  if (opened.file.get() < 0) return Failure(relative);
  struct stat status {};
  if (::fstat(opened.file.get(), &status) != 0) return Failure(relative);
  if (!S_ISREG(status.st_mode)) {
    errno = EACCES;
    return Failure(relative);
  }
  opened.size = static_cast<std::uint64_t>(status.st_size);
  return opened;
}

std::shared_ptr<http::BodyStream> StreamFile(OpenFile file, std::uint64_t offset,
                                             std::uint64_t length) {
  return std::make_shared<FileStream>(std::move(file), offset, length);
}

}  // namespace starling::service

// SPDX-License-Identifier: Apache-2.0
// A disk that keeps only what was synced, as a library for LD_PRELOAD.
//
// Programs write to their files as ever. Beside that, each fsync and fdatasync keeps what a disk
// would have from then on, in the folder `kept` beside the library: of a file its content, of a
// folder its list of names. After a power cut power_cut.py makes files anew from what was kept, and
// from nothing else: content that was not synced is gone, and so is a name whose folder was not
// synced after it came. POSIX promises no more, and file systems that keep more do so by chance.
//
// Files are known by inode and time of birth, since numbers of inodes are used again. Where the
// file `loses-folders` is beside the library, syncing a folder keeps nothing: a control, in which
// what relies on it must be seen to be lost.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::string Known(const struct statx& info) {
  return std::to_string(info.stx_ino) + "." + std::to_string(info.stx_btime.tv_sec) + "." +
         std::to_string(info.stx_btime.tv_nsec);
}

bool Look(int folder, const char* name, struct statx& info) {
  return ::statx(folder, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME,
                 &info) == 0;
}

bool WriteAll(int to, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::write(to, bytes, size);
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

bool CopyFrom(int from, int to) {
  char block[1 << 16];
  off_t at = 0;
  ssize_t count = 0;
  while ((count = ::pread(from, block, sizeof(block), at)) > 0) {
    if (!WriteAll(to, block, static_cast<std::size_t>(count))) return false;
    at += count;
  }
  return count == 0;
}

// Through the caller's descriptor, if it may read: to close another one of the same file would let
// go of all of the process's locks on it, and SQLite keeps its own by them.
bool CopyContent(int file, int to) {
  if ((::fcntl(file, F_GETFL) & O_ACCMODE) != O_WRONLY) return CopyFrom(file, to);
  const int from = ::open(("/proc/self/fd/" + std::to_string(file)).c_str(), O_RDONLY | O_CLOEXEC);
  if (from < 0) return false;
  const bool whole = CopyFrom(from, to);
  ::close(from);
  return whole;
}

char KindOf(unsigned mode) {
  return S_ISDIR(mode) ? 'd' : S_ISREG(mode) ? 'f' : S_ISFIFO(mode) ? 'p' : '?';
}

// A line an entry: its kind, which it is, its name.
bool CopyNames(int folder, int to) {
  DIR* listing = ::opendir(("/proc/self/fd/" + std::to_string(folder)).c_str());
  if (listing == nullptr) return false;
  std::string lines;
  while (const dirent* entry = ::readdir(listing)) {
    const std::string name = entry->d_name;
    struct statx info {};
    if (name == "." || name == ".." || !Look(::dirfd(listing), entry->d_name, info)) continue;
    lines += std::string(1, KindOf(info.stx_mode)) + " " + Known(info) + " " + name + "\n";
  }
  ::closedir(listing);
  return WriteAll(to, lines.data(), lines.size());
}

// Who syncs one file at once waits for the other: what is kept last was also looked at last.
bool Keep(int file, const std::string& disk) {
  struct statx info {};
  if (!Look(file, "", info)) return false;
  const bool is_folder = S_ISDIR(info.stx_mode);
  if (!is_folder && !S_ISREG(info.stx_mode)) return true;
  if (is_folder && ::access((disk + "/loses-folders").c_str(), F_OK) == 0) return true;
  const std::string path = disk + "/kept/" + Known(info);
  const std::string temporary = path + ".new";
  const int lock = ::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0 || ::flock(lock, LOCK_EX) != 0) return false;
  const int to = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool kept = to >= 0 && (is_folder ? CopyNames(file, to) : CopyContent(file, to)) &&
                    ::rename(temporary.c_str(), path.c_str()) == 0;
  if (to >= 0) ::close(to);
  ::close(lock);
  return kept;
}

// Where this library lies. Pods have few variables, so that it is not told by one.
std::string OwnFolder() {
  Dl_info info{};
  ::dladdr(reinterpret_cast<const void*>(&Known), &info);
  const std::string path = info.dli_fname;
  return path.substr(0, path.rfind('/'));
}

// The disk itself is asked too: what it says of a full disk or a bad descriptor stands.
int Sync(int file, long call) {
  if (::syscall(call, file) != 0) return -1;
  const int before = errno;
  if (!Keep(file, OwnFolder())) {
    std::fprintf(stderr, "forgetful disk: cannot keep what was synced: %d\n", errno);
    std::abort();
  }
  errno = before;
  return 0;
}

}  // namespace

extern "C" int fsync(int file) { return Sync(file, SYS_fsync); }
extern "C" int fdatasync(int file) { return Sync(file, SYS_fdatasync); }

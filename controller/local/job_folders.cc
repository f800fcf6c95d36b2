// SPDX-License-Identifier: Apache-2.0
#include "controller/local/job_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::local {

JobFolders::~JobFolders() {
  for (const auto& [uid, descriptor] : held_) close(descriptor);
}

absl::Status JobFolders::Hold(const JobReference& job) {
  if (held_.contains(job.uid)) return absl::OkStatus();
  const std::string folder = JobFolder(home_, job);
  RETURN_IF_ERROR(MakeFolder(folder));
  const std::string fifo = folder + "/alive";
  if (mkfifo(fifo.c_str(), 0600) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", fifo));
  }
  // For reading too: opening for writing alone would wait for a reader.
  const int descriptor = open(fifo.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
  struct stat info {};
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", fifo));
  if (fstat(descriptor, &info) != 0 || !S_ISFIFO(info.st_mode)) {
    close(descriptor);
    return absl::FailedPreconditionError(absl::StrCat(fifo, " is no FIFO; remove it"));
  }
  held_[job.uid] = descriptor;
  return absl::OkStatus();
}

void JobFolders::Release(const JobReference& job) {
  const auto held = held_.find(job.uid);
  if (held == held_.end()) return;
  close(held->second);
  held_.erase(held);
}

void JobFolders::Remove(const JobReference& job) {
  Release(job);
  RemoveFolder(JobFolder(home_, job));
}

}  // namespace starling::local

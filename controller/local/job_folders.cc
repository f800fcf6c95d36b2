// SPDX-License-Identifier: Apache-2.0
#include "controller/local/job_folders.h"

#include "absl/strings/str_cat.h"
#include "common/status/macros.h"

namespace starling::local {

absl::Status JobFolders::Hold(const JobReference& job) {
  if (held_.contains(job.uid)) return absl::OkStatus();
  const std::string folder = JobFolder(home_, job);
  RETURN_IF_ERROR(MakeFolder(folder));
  const std::string fifo = folder + "/alive";
  process::AliveHold hold;
  if (const int error = process::AliveHold::Open(fifo, hold); error != 0) {
    return absl::ErrnoToStatus(error, absl::StrCat("cannot hold ", fifo, "; remove it"));
  }
  held_[job.uid] = std::move(hold);
  return absl::OkStatus();
}

void JobFolders::Release(const JobReference& job) { held_.erase(job.uid); }

void JobFolders::Remove(const JobReference& job) {
  Release(job);
  RemoveFolder(JobFolder(home_, job));
}

}  // namespace starling::local

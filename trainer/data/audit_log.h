// SPDX-License-Identifier: Apache-2.0
// The audit: one line a settled step, with the samples that it used (dataset.auditUse).
//
// A line is a pure function of its step, so whoever writes goes on where the file ends: a successor
// needs nothing from its predecessor, and writing up to step k twice changes nothing. Opening cuts
// a torn last line; restoring an older state cuts the lines after it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/batches.h"

namespace starling::data {

// Thread-compatible. The view's first member writes; should an old and a new one overlap, a lock on
// the file and a look at its end keep each line single.
class AuditLog {
 public:
  // Opens or creates <job_dir>/audit/steps.jsonl.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(const std::string& job_dir,
                                                        const Batches& batches);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Appends the lines that are missing up to and including settled step `step`; after what another
  // process has appended meanwhile. UNAVAILABLE while another is writing: try again at the next
  // step. On any error the file ends with a whole line.
  absl::Status AppendUpTo(std::int64_t step);

  // Drops the lines after `step`: the state of `step` was restored, later steps run anew.
  absl::Status TruncateAfter(std::int64_t step);

  // The step of the last whole line; 0 when there is none.
  std::int64_t last_step() const { return last_step_; }

 private:
  AuditLog(int file, std::string path, const Batches& batches);

  // Runs `action` with the file locked and last_step_ and size_ up to date.
  template <typename Action>
  absl::Status Locked(const Action& action);
  absl::Status Recover();
  absl::Status CutTo(std::int64_t size);
  absl::Status Append(const std::string& lines);
  absl::StatusOr<std::string> ReadRange(std::int64_t begin, std::int64_t end) const;
  absl::Status Failed(const char* what) const;

  const int file_;
  const std::string path_;
  const Batches batches_;
  std::int64_t last_step_ = 0;
  std::int64_t size_ = 0;  // bytes up to the end of the last whole line
};

}  // namespace starling::data

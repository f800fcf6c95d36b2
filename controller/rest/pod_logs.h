// SPDX-License-Identifier: Apache-2.0
// The logs of a job's pods on one machine, as files that grow.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/history/record.h"
#include "controller/rest/job_files.h"

namespace starling::service {

struct PodLog {
  std::string pod;
  std::string file;  // below the job's folder
};

// Of those pods that the request asks for and that have written anything, oldest first.
std::vector<PodLog> FindPodLogs(const std::string& job_folder, const LogRequest& request);

// The end of what each pod has written, those that were replaced too, oldest first.
std::vector<history::LogTail> ReadLogTails(const std::string& job_folder);

// Whole lines, in the order in which they are found: as text, with the pod's name before each where
// several are asked for, or as events. At most 1 MiB/s. Thread-compatible.
class PodLogStream final : public http::BodyStream {
 public:
  PodLogStream(std::string job_folder, const clock::Clock& clock, LogRequest request);

  Piece Next() override;
  void Drain() override { draining_ = true; }
  bool ReadsFiles() const override { return true; }

 private:
  struct Place {
    std::uint64_t offset = 0;
    bool begun = false;
  };

  bool IsOver(const std::vector<PodLog>& logs, absl::Time now);
  bool ReadSome(const PodLog& log, bool all, std::string& text);
  std::uint64_t TailOf(const OpenFile& file) const;
  std::string Say(const PodLog& log, std::string_view lines) const;
  Piece End(Piece piece, std::string_view reason) const;

  const std::string folder_;
  const clock::Clock& clock_;
  const LogRequest request_;
  const absl::Time deadline_;
  absl::Time last_said_;
  std::optional<absl::Time> finished_;   // the job; its pods may still be writing
  std::map<std::string, Place> places_;  // by file
  bool draining_ = false;
};

}  // namespace starling::service

// SPDX-License-Identifier: Apache-2.0
// No history: nothing is kept, and nothing is known of what is gone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/history/history.h"

namespace starling::history {

class NoHistory final : public History {
 public:
  absl::StatusOr<std::vector<std::string>> Record(const std::vector<JobUpdate>&) override {
    return std::vector<std::string>();
  }
  absl::StatusOr<PastJob> Find(const JobName& job) override {
    return absl::NotFoundError("job " + job.ns + "/" + job.name + " not found");
  }
  absl::StatusOr<std::vector<ListedJob>> List(const ListQuery&) override {
    return std::vector<ListedJob>();
  }
  absl::StatusOr<std::map<std::string, Points>> Curves(const std::string&,
                                                       const std::string&) override {
    return std::map<std::string, Points>();
  }
  absl::StatusOr<std::vector<LogTail>> Logs(const std::string&) override {
    return std::vector<LogTail>();
  }
  absl::StatusOr<std::vector<PresentJob>> Present() override { return std::vector<PresentJob>(); }
  absl::StatusOr<std::string> FindUid(const std::string&, const std::string&,
                                      const std::string&) override {
    return std::string();
  }
  absl::StatusOr<std::int64_t> NewestVersion() override { return 0; }
  absl::StatusOr<Space> Trim(const Retention&, absl::Time) override { return Space{}; }
  std::int64_t incarnation() const override { return 0; }
  const std::string& name() const override { return name_; }

 private:
  const std::string name_ = "no history";
};

}  // namespace starling::history

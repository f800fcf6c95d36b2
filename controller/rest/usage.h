// SPDX-License-Identifier: Apache-2.0
// Who has used how much: from the seconds that jobs account for themselves, summed up. Pure.
//
// A job's status has the seconds of all workers and parameter servers that it ever had
// (status.goodput); times the cores that each asks for they are core-seconds: what was kept from
// others, be it used or not. The job's summary carries them, so that past jobs count too. A status
// says no more than their sum: of a job that lies partly within the times that are asked about, the
// share of its time within them counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "absl/time/time.h"
#include "controller/kube/kube_client.h"

namespace starling::service {

// For a job's summary: from, to (absent: it goes on), coreSeconds and processSeconds; of a job that
// brings its own container, which accounts for nothing, the cores and processes that it asks for
// at a time instead. Null: it has not begun.
kube::Json UseOf(const kube::Json& job);

struct UsageQuery {
  absl::Time from = absl::InfinitePast();
  absl::Time to = absl::InfiniteFuture();
  bool by_namespace = true;
  bool by_account = true;
  bool by_job = false;
};

// Thread-compatible.
class Usage {
 public:
  Usage(UsageQuery query, absl::Time now) : query_(query), now_(now) {}

  // A job by its summary; `gone` is when its object went.
  void Add(const kube::Json& summary, std::optional<absl::Time> gone);

  // Largest first.
  kube::Json ToJson() const;
  std::string ToCsv() const;

 private:
  struct Sum {
    std::int64_t jobs = 0;
    double core_seconds = 0;
    double process_seconds = 0;
  };
  using Key = std::tuple<std::string, std::string, std::string>;  // namespace, account, job

  kube::Json Rows() const;

  const UsageQuery query_;
  const absl::Time now_;
  std::map<Key, Sum> sums_;
  std::int64_t estimated_ = 0;
  std::int64_t unknown_ = 0;
};

}  // namespace starling::service

// SPDX-License-Identifier: Apache-2.0
// How training fares, kept on the servers (a job with parameter servers), so that it outlives every
// worker: the course with its validations, and the parameters that are worth keeping.
//
// It lies in the key-value shard `course`. Parameters are written in pieces into the one of two
// sets that the record does not name, and the record last, so that whoever dies on the way leaves
// the record and what it names as they were.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/client/parameter_server_client.h"
#include "trainer/worker/course.h"

namespace starling::worker {

// The record.
struct CourseRecord {
  std::int64_t turn = 0;  // of the newest validation; 0: none was made
  bool ends_training = false;
  std::int64_t set = 0;  // of the parameters kept: 1 or 2; 0: none are
  Course course;
};
std::string EncodeRecord(const CourseRecord& record);
absl::StatusOr<CourseRecord> DecodeRecord(std::string_view bytes);

// Confined to the loop's thread. Every call that waits returns UNAVAILABLE when the view ends, or
// when a server has not answered for so long that the view counts as ended.
class CourseStore {
 public:
  // `pipe` outlives it; `shard` is the key-value shard's number.
  CourseStore(client::ParameterServerClient& pipe, std::size_t shard,
              absl::Duration timeout = absl::Minutes(5))
      : pipe_(pipe), shard_(shard), timeout_(timeout) {}

  absl::StatusOr<CourseRecord> Read();
  // The parameters that `record` names, into `parameters`.
  absl::Status ReadKept(const CourseRecord& record, std::span<float> parameters);
  // Writes the record, and `keep` as the parameters that it names from now on (empty: those that it
  // named); returns it as it was written.
  absl::StatusOr<CourseRecord> Write(CourseRecord record, std::span<const float> keep);

  // Asks for the record without waiting; `on_record` is called when it comes.
  void Ask(std::function<void(const CourseRecord&)> on_record);

 private:
  absl::StatusOr<std::string> ReadKey(std::uint64_t key);
  void Put(std::uint64_t key, std::string_view text);
  absl::Status AwaitAcknowledged();
  absl::Status Await(const std::function<bool()>& done);

  client::ParameterServerClient& pipe_;
  const std::size_t shard_;
  const absl::Duration timeout_;  // of one answer
};

}  // namespace starling::worker

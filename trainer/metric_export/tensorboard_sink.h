// SPDX-License-Identifier: Apache-2.0
// Metrics in event files of TensorBoard, in one folder for each job: TensorBoard's "run".
#pragma once

#include <optional>
#include <string>

#include "common/net/socket.h"
#include "trainer/metric_export/run_record.h"
#include "trainer/metric_export/sink.h"

namespace starling::metric_export {

class TensorBoardSink final : public Sink {
 public:
  // `folder` is of one job alone and is made with the first points; `writer` is part of the file's
  // name and tells files of several processes apart.
  TensorBoardSink(std::string folder, std::string writer);

  // A full disk, or a folder that is not there yet, costs the points of that time and nothing else:
  // what was half written is taken back.
  absl::Status Tell(const Points& points) override;

 private:
  absl::Status Begin(absl::Time now);
  absl::Status Append(std::string_view bytes);

  const std::string folder_;
  const std::string writer_;
  std::string path_;
  net::FileDescriptor file_;  // invalid: not begun
  RunRecord record_;
  std::int64_t size_ = 0;  // of what is whole
};

}  // namespace starling::metric_export

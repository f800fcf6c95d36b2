// SPDX-License-Identifier: Apache-2.0
// Where a job's metrics are told. To add a place: implement this, a field in spec.export, a line in
// open_exporters.cc.
#pragma once

#include "absl/status/status.h"
#include "trainer/metric_export/points.h"

namespace starling::metric_export {

// Confined to the exporter's thread.
class Sink {
 public:
  virtual ~Sink() = default;

  // It may wait for a disk or a server. An error says what is wrong and what to do about it; these
  // points are lost then, and the next ones are tried all the same.
  virtual absl::Status Tell(const Points& points) = 0;
};

}  // namespace starling::metric_export

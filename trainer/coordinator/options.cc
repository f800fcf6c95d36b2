// SPDX-License-Identifier: Apache-2.0
#include "trainer/coordinator/options.h"

#include "common/flags/flags.h"
#include "common/status/macros.h"

namespace starling::coordinator {

absl::StatusOr<Options> ParseOptions(const std::vector<std::string>& arguments) {
  constexpr absl::Duration kShortest = absl::Milliseconds(1);
  Options options;
  flags::App app;
  app.add_option("--spec", options.spec_path)->required();
  app.add_option("--tls", options.tls_path)->required();
  app.add_option("--job-uid", options.job_uid)->required();
  app.add_option("--job-name", options.job_name);
  app.add_option("--address", options.address)->required();
  app.add_option("--pod-name", options.pod_name);
  app.add_option("--pod-uid", options.pod_uid);
  app.AddDuration("--heartbeat-timeout", options.heartbeat_timeout, kShortest);
  app.AddDuration("--takeover-timeout", options.takeover_timeout, kShortest);
  RETURN_IF_ERROR(app.Parse(arguments));
  return options;
}

}  // namespace starling::coordinator

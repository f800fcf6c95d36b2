// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/data_plane.h"

#include "absl/strings/str_cat.h"
#include "api/spec/quantity.h"
#include "common/net/ports.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/transport/mixed_transport.h"

namespace starling::control {

absl::StatusOr<transport::Shaping> ShapingOf(const v1alpha1::TrainingJobSpec& spec,
                                             const std::string& folder) {
  transport::Shaping shaping;
  if (!spec.experiment().has_network()) return shaping;
  const v1alpha1::EmulatedNetwork& network = spec.experiment().network();
  if (network.has_bandwidth()) {
    const auto bits = spec::ParseQuantity(network.bandwidth());
    if (!bits.has_value() || *bits <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("spec.experiment.network.bandwidth must be a quantity such as 1G, not \"",
                       network.bandwidth(), "\""));
    }
    shaping.bytes_per_second = *bits / 8;
  }
  shaping.delay =
      absl::Seconds(network.delay().seconds()) + absl::Nanoseconds(network.delay().nanos());
  if (network.pods_per_host() > 1) {
    shaping.pods_per_host = static_cast<int>(network.pods_per_host());
    shaping.card_folder = folder;
  }
  return shaping;
}

bool Encrypts(const v1alpha1::TrainingJobSpec& spec) {
  return spec.data_plane().encryption() == v1alpha1::DATA_PLANE_ENCRYPTION_TLS;
}

absl::StatusOr<std::unique_ptr<transport::Transport>> OpenTransport(
    const Options& options, const v1alpha1::TrainingJobSpec& spec, const std::string& secret,
    const transport::Spin& spin, bool share_memory) {
  transport::Options mine;
  mine.member = NameOf(options.self());
  mine.job = options.job_uid;
  mine.secret = secret;
  mine.spin = spin;
  mine.encrypted = Encrypts(spec);
  mine.datagrams = spec.data_plane().protocol() == v1alpha1::DATA_PLANE_PROTOCOL_UDP;
  ASSIGN_OR_RETURN(mine.shaping, ShapingOf(spec, options.job_dir));
  mine.share_memory = share_memory && !mine.shaping.enabled();
  return transport::OpenMixedTransport({.host = options.address, .port = net::kDataPort}, mine);
}

}  // namespace starling::control

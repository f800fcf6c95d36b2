// SPDX-License-Identifier: Apache-2.0
#include "trainer/control/data_plane.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/quantity.h"
#include "common/net/ports.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/transport/mixed_transport.h"

namespace starling::control {

namespace {

absl::Duration DurationOf(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

// Of the field at `path`, which is in bits; 0 where it is not given.
template <typename Message>
absl::StatusOr<double> BytesPerSecond(const Message& message, const std::string& path) {
  if (!message.has_bandwidth()) return 0;
  const auto bits = spec::ParseQuantity(message.bandwidth());
  if (bits.has_value() && *bits > 0) return *bits / 8;
  return absl::InvalidArgumentError(absl::StrCat(
      path, ".bandwidth must be a quantity such as 1G, not \"", message.bandwidth(), "\""));
}

}  // namespace

absl::StatusOr<transport::Shaping> ShapingOf(const v1alpha1::TrainingJobSpec& spec,
                                             const std::string& folder) {
  transport::Shaping shaping;
  if (!spec.experiment().has_network()) return shaping;
  const v1alpha1::EmulatedNetwork& network = spec.experiment().network();
  const std::string path = "spec.experiment.network";
  ASSIGN_OR_RETURN(shaping.bytes_per_second, BytesPerSecond(network, path));
  shaping.delay = DurationOf(network.delay());
  for (int i = 0; i < network.links_size(); ++i) {
    const v1alpha1::EmulatedLink& link = network.links(i);
    transport::LinkShaping& shaped = shaping.links.emplace_back();
    shaped.from = link.from();
    shaped.to = link.to();
    ASSIGN_OR_RETURN(shaped.bytes_per_second,
                     BytesPerSecond(link, absl::StrCat(path, ".links[", i, "]")));
    if (link.has_delay()) shaped.delay = DurationOf(link.delay());
  }
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
    const transport::Spin& spin, bool share_memory,
    std::shared_ptr<const transport::Window> window) {
  transport::Options mine;
  mine.member = NameOf(options.self());
  mine.job = options.job_uid;
  mine.secret = secret;
  mine.spin = spin;
  mine.encrypted = Encrypts(spec);
  mine.datagrams = spec.data_plane().protocol() == v1alpha1::DATA_PLANE_PROTOCOL_UDP;
  ASSIGN_OR_RETURN(mine.shaping, ShapingOf(spec, options.job_dir));
  mine.share_memory = share_memory && !mine.shaping.enabled();
  mine.window = std::move(window);
  return transport::OpenMixedTransport({.host = options.address, .port = net::kDataPort}, mine);
}

}  // namespace starling::control

// SPDX-License-Identifier: Apache-2.0
// How the program of a member opens its transport: on which address, as whom, over which network.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/control/options.h"
#include "trainer/transport/transport.h"

namespace starling::v1alpha1 {
class TrainingJobSpec;
}  // namespace starling::v1alpha1

namespace starling::control {

// What spec.experiment.network says; members find the cards that they share in `folder`.
absl::StatusOr<transport::Shaping> ShapingOf(const v1alpha1::TrainingJobSpec& spec,
                                             const std::string& folder);

// Whether its members encrypt what they send one another.
bool Encrypts(const v1alpha1::TrainingJobSpec& spec);

// Members of one machine share memory where they can (for each pair that shows when they connect),
// if they may (`share_memory`) and no network is emulated between them. Whether links over TCP are
// encrypted, the spec says. `secret` is the job's data-plane key. Members of this machine may read
// `window`, if there is one.
absl::StatusOr<std::unique_ptr<transport::Transport>> OpenTransport(
    const Options& options, const v1alpha1::TrainingJobSpec& spec, const std::string& secret,
    const transport::Spin& spin, bool share_memory,
    std::shared_ptr<const transport::Window> window = nullptr);

}  // namespace starling::control

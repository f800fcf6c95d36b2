// SPDX-License-Identifier: Apache-2.0
// TensorBoard's event files: records with checksums (TFRecord), each an Event
// (api/proto/tensorboard).
//
// A record is its length in 8 bytes, the checksum of these, the bytes, and their checksum, all
// little endian. The checksums are CRC-32C, "masked": rotated and added to, so that the checksum of
// text that holds checksums is a good one too. Pure but for ReadEvents.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tensorboard/event.pb.h"

namespace starling::metric_export {

std::string RecordOf(std::string_view bytes);
std::string RecordOf(const tensorboard::Event& event);

// The events of a file, in order, up to its end or to the first record that is not whole or not
// right: what a process that was killed wrote last may be half there. NOT_FOUND: no such file.
absl::Status ReadEvents(const std::string& path,
                        const std::function<void(const tensorboard::Event&)>& take);

}  // namespace starling::metric_export

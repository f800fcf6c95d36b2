// SPDX-License-Identifier: Apache-2.0
// What a job means when everything that it leaves out is filled in: default < preset < file.
//
// Pure, and generic over the descriptors: defaults stand beside their fields in the proto
// (default_value, default_member). To add a preset, add a row to the table in presets.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "starling/v1alpha1/training_job.pb.h"

namespace google::protobuf {
class Message;
}

namespace starling::spec {

// `given` must have been read without errors; a preset that does not exist counts as none
// (Validate names it). Resolving twice changes nothing.
v1alpha1::TrainingJobSpec Resolve(const v1alpha1::TrainingJobSpec& given);

// Lays `over` onto `base`, both of one type, field by field: what `over` has wins, a list or map as
// a whole, and a union's member replaces another one.
void Overlay(const google::protobuf::Message& over, google::protobuf::Message& base);

// Sorted. What each gives is a spec with only its own fields present.
std::vector<std::string> PresetNames();
v1alpha1::TrainingJobSpec PresetSpec(std::string_view name);

}  // namespace starling::spec

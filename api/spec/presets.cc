// SPDX-License-Identifier: Apache-2.0
// The table of presets: values of our fields where the job file says nothing, as a named system has
// them by default. That system's other mechanisms do not come with them: under `horovod` nothing is
// negotiated, cached or written into a timeline. To add one: a row here; tests/e2e/train_test.py
// runs a job with each.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "api/spec/reader.h"
#include "api/spec/resolve.h"
#include "common/json/json.h"
#include "common/status/check.h"
#include "nlohmann/json.hpp"

namespace starling::spec {
namespace {

struct Preset {
  std::string_view name;
  std::string_view spec;  // JSON of a TrainingJobSpec with only the preset's own fields
};

constexpr Preset kPresets[] = {
    // HOROVOD_FUSION_THRESHOLD is 64 MiB by default.
    {"horovod", R"({"exchange": {"allReduce": {"algorithm": "Ring", "bucketBytes": 67108864}}})"},
    // DistributedDataParallel's bucket_cap_mb is 25 by default.
    {"pytorchDdp",
     R"({"exchange": {"allReduce": {"algorithm": "Ring", "bucketBytes": 26214400}}})"},
};

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  std::sort(names.begin(), names.end());
  return names;
}

v1alpha1::TrainingJobSpec PresetSpec(std::string_view name) {
  v1alpha1::TrainingJobSpec spec;
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    const auto value = json::Parse(preset.spec);
    STARLING_CHECK(value.ok(), "presets are JSON");
    const FieldErrors errors = ReadMessage(*value, "spec", spec, {.check_required = false});
    STARLING_CHECK(errors.empty(), Format(errors).c_str());
  }
  return spec;
}

}  // namespace starling::spec

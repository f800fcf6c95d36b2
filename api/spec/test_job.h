// SPDX-License-Identifier: Apache-2.0
// The job that the tests of this folder change in one place or another, and how they read it.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "api/spec/job_file.h"
#include "nlohmann/json.hpp"

namespace starling::spec {

// Valid; two workers, an MLP, CSV files.
inline nlohmann::json DigitsJob() {
  return nlohmann::json::parse(R"({
    "apiVersion": "starling.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "digits"},
    "spec": {
      "workload": {"classification": {"model": {"mlp": {"hidden": [128, 64]}}}},
      "dataset": {"train": {"csv": {"uri": "train.csv", "shape": [1, 8, 8]}},
                  "validation": {"csv": {"uri": "test.csv", "shape": [1, 8, 8]}}},
      "replicaSpecs": {"worker": {"replicas": 2, "maxReplicas": 8}}}})");
}

// DigitsJob with fields set as `--set` would, "path=value".
inline nlohmann::json DigitsJobWith(const std::vector<std::string>& settings) {
  nlohmann::json job = DigitsJob();
  for (const std::string& setting : settings) {
    const auto equals = setting.find('=');
    const absl::Status status = SetPath(job, setting.substr(0, equals), setting.substr(equals + 1));
    if (!status.ok()) throw std::invalid_argument(std::string(status.message()));
  }
  return job;
}

inline std::string ErrorsOf(const nlohmann::json& document) {
  CheckedJob checked;
  return Format(CheckJob(document, checked));
}

}  // namespace starling::spec

// SPDX-License-Identifier: Apache-2.0
// What the program shows of jobs, pods and events: one function a view, pure.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "controller/history/curves.h"
#include "controller/kube/kube_client.h"
#include "starling/v1alpha1/training_job.pb.h"

namespace starling::cli {

// Columns as wide as their widest cell, three spaces between them; the first row is the head.
std::string Table(const std::vector<std::vector<std::string>>& rows);

std::string JobsTable(const std::vector<kube::Json>& jobs, bool wide, bool with_namespace,
                      absl::Time now);
std::string PodsTable(const std::vector<kube::Json>& pods, bool wide, bool with_namespace,
                      absl::Time now);
std::string EventsTable(const std::vector<kube::Json>& events, bool wide, bool with_namespace,
                        absl::Time now);

// "digits  epoch 3/20  step 120/460  26%  loss 0.231 ...": for the live line.
std::string ProgressLine(const v1alpha1::TrainingJob& job);

// The page of numbers at a job's end.
std::string FinalPage(const v1alpha1::TrainingJob& job);

// Everything about a job, its pods and its events.
std::string DescribePage(const kube::Json& job, const std::vector<kube::Json>& pods,
                         const std::vector<kube::Json>& events, absl::Time now);

// How each metric of a past job went; empty without any.
std::string CurvesSection(const std::map<std::string, history::Points>& curves);

// The job as a message, as far as it can be read.
v1alpha1::TrainingJob ToMessage(const kube::Json& job);

}  // namespace starling::cli

// SPDX-License-Identifier: Apache-2.0
// training-steps JOB.json STEPS: the steps of a job as one worker makes them, without processes
// around them, one line each: "<step> <mean training loss> <id>,<id>,...", and where the job has
// validation data a last line "validation <loss> <second metric>".
//
// It is what comparisons with other programs step by step need: the losses of single steps and the
// samples that they are of stand in no result. All that computes is the worker's own.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "api/spec/job_file.h"
#include "common/json/json.h"
#include "common/status/macros.h"
#include "nlohmann/json.hpp"
#include "trainer/data/batches.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/worker/numeric_environment.h"
#include "trainer/worker/training_state.h"
#include "trainer/workload/workloads.h"

namespace starling {
namespace {

absl::Status Train(const v1alpha1::TrainingJobSpec& spec, std::int64_t steps) {
  ASSIGN_OR_RETURN(const workload::Opener open, workload::Begin(spec));
  ASSIGN_OR_RETURN(const std::unique_ptr<workload::Workload> workload, open());
  ASSIGN_OR_RETURN(const auto rule, optimizer::MakeOptimizer(spec.optimizer()));
  worker::TrainingState state(*workload, *rule, /*keep_best=*/false);
  const workload::Declaration& declared = workload->declaration();
  const data::Batches batches(declared.samples, spec.dataset().global_batch_size(),
                              static_cast<std::uint64_t>(spec.seed()));
  for (std::int64_t step = 1; step <= steps; ++step) {
    const std::vector<std::int64_t> ids = batches.SampleIds(step);
    workload::Client client;
    client.epoch = batches.At(step).epoch;
    ASSIGN_OR_RETURN(const workload::Sums sums, workload->Compute(ids, client));
    const workload::Values means = workload::MeansOf(sums, declared);
    state.Apply(optimizer::LearningRate(spec.optimizer(), step), std::ssize(ids), means,
                workload->gradients(), spec.optimizer().clip_norm());
    std::printf("%s %.9g %s\n", absl::StrCat(step).c_str(), means[0],
                absl::StrJoin(ids, ",").c_str());
  }
  constexpr std::int64_t kAtOnce = 128;
  workload::Sums judged;
  for (std::int64_t begin = 0; begin < declared.validation_samples; begin += kAtOnce) {
    ASSIGN_OR_RETURN(
        const workload::Sums sums,
        workload->Evaluate(begin, std::min(begin + kAtOnce, declared.validation_samples)));
    workload::Add(sums, judged);
  }
  if (!judged.empty()) {
    const workload::Values means = workload::MeansOf(judged, declared);
    std::printf("validation %.9g %.9g\n", means[0], means[1]);
  }
  return absl::OkStatus();
}

absl::Status Main(const std::string& path, const std::string& steps) {
  std::int64_t count = 0;
  if (!absl::SimpleAtoi(steps, &count)) return absl::InvalidArgumentError("STEPS is no number");
  std::ifstream file(path);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  ASSIGN_OR_RETURN(const nlohmann::json document, json::Parse(text));
  spec::CheckedJob job;
  const spec::FieldErrors errors = spec::CheckJob(document, job);
  if (!errors.empty()) return absl::InvalidArgumentError(spec::Format(errors));
  return Train(job.resolved, count);
}

}  // namespace
}  // namespace starling

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: training-steps JOB.json STEPS\n";
    return 2;
  }
  starling::worker::PrepareNumericEnvironment();
  const absl::Status status = starling::Main(argv[1], argv[2]);
  if (status.ok()) return 0;
  std::cerr << status.message() << "\n";
  return 1;
}

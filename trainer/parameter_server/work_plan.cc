// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_server/work_plan.h"

#include <algorithm>
#include <limits>

#include "api/spec/consistency.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/parameter_server/job_tables.h"

namespace starling::parameter_server {
namespace {

// With room for the portions of each.
constexpr std::int64_t kMostUnits = std::numeric_limits<std::int64_t>::max() >> 22;

std::int64_t Product(std::int64_t a, std::int64_t b) {
  return a > kMostUnits / b ? kMostUnits : a * b;
}

}  // namespace

std::int64_t WorkPlan::BatchesBefore(std::int64_t turn) const {
  return std::min(total, Product(per_epoch, turn));
}

std::int64_t WorkPlan::TurnAfter(std::int64_t made) const {
  if (every == 0 || total == 0) return 0;
  const std::int64_t last = (total - 1) / per_epoch + 1;
  return made >= last ? 0 : std::min(last, (made / every + 1) * every);
}

std::int64_t WorkPlan::TurnDue(std::int64_t made, std::int64_t settled) const {
  const std::int64_t next = TurnAfter(made);
  return next != 0 && settled >= BatchesBefore(next) ? next : 0;
}

std::int64_t WorkPlan::Limit(std::int64_t made) const {
  const std::int64_t next = TurnAfter(made);
  return next == 0 ? total : BatchesBefore(next + ahead * every);
}

bool WorkPlan::Over(std::int64_t made, std::int64_t settled) const {
  return settled >= total && TurnAfter(made) == 0;
}

WorkPlan WorkOf(const v1alpha1::TrainingJobSpec& spec, const v1alpha1::Stop& stop,
                std::int64_t samples) {
  WorkPlan plan;
  const std::int64_t batch = std::max<std::int64_t>(1, SamplesPerStep(spec));
  plan.portions = PortionsOf(spec);
  plan.in_step = spec::WorksInStep(spec);
  plan.per_epoch = std::max<std::int64_t>(1, (samples + batch - 1) / batch);
  plan.total = kMostUnits;
  if (stop.has_epochs()) plan.total = Product(plan.per_epoch, stop.epochs());
  if (stop.has_steps()) plan.total = std::min(plan.total, stop.steps());
  if (spec.dataset().has_validation()) {
    plan.every = std::max<std::int64_t>(1, spec.validation().every_epochs());
  }
  plan.ahead = spec::AllWaitForAll(spec) ? 0 : 1;
  const v1alpha1::LocalSgd& local = spec.update().local_sgd();
  const std::int64_t units = std::max<std::int64_t>(1, local.push_every());  // in one lease
  plan.warm_start = (local.warm_start() + units - 1) / units;
  return plan;
}

}  // namespace starling::parameter_server

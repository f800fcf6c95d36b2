// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/lease_loop.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/consistency.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/membership.pb.h"
#include "trainer/membership/convert.h"
#include "trainer/worker/result.h"
#include "trainer/worker/validation.h"

namespace starling::worker {
namespace {

using consistency::LeaseRun;
using parameter_server::Lease;

// How long this worker waits for peers before it calls a view broken by itself; the coordinator
// ends it long before when it finds a member silent.
constexpr absl::Duration kOpenPatience = absl::Seconds(30);
// How often a worker that waits looks for new orders, and at its links.
constexpr absl::Duration kLook = absl::Milliseconds(2);
// After so long without a lease others do not wait for this worker any more.
constexpr absl::Duration kRestAfter = absl::Milliseconds(10);
// How often the course on the servers is looked at, to tell it.
constexpr absl::Duration kAskEvery = absl::Seconds(1);
constexpr double kSmoothing = 0.1;

absl::Duration StepDelay(const v1alpha1::TrainingJobSpec& spec) {
  const google::protobuf::Duration& delay = spec.experiment().step_delay();
  return absl::Seconds(delay.seconds()) + absl::Nanoseconds(delay.nanos());
}

std::vector<std::optional<parameter_server::Reduction>> ReductionsOf(
    const parameter_server::JobTables& tables) {
  std::vector<std::optional<parameter_server::Reduction>> reductions;
  for (const auto& slot : tables.slots) {
    reductions.push_back(parameter_server::ReductionOf(slot));
  }
  return reductions;
}

void Smooth(const Values& newest, std::optional<Values>& smoothed) {
  if (!smoothed) smoothed = newest;
  for (std::size_t i = 0; i < newest.size(); ++i) {
    (*smoothed)[i] += kSmoothing * (newest[i] - (*smoothed)[i]);
  }
}

// Where everybody waits for everybody, waiting for a part of a sum costs nothing; else whoever
// waits for its own push is kept from its next lease.
client::SlotPipe::Patience PatienceOf(const v1alpha1::TrainingJobSpec& spec) {
  if (spec::AllWaitForAll(spec)) return {absl::Milliseconds(500), absl::Seconds(1)};
  return {absl::Milliseconds(5), absl::Milliseconds(250)};
}

}  // namespace

LeaseLoop::LeaseLoop(Parts parts)
    : parts_(std::move(parts)),
      batches_(declared().samples, parameter_server::SamplesPerStep(parts_.spec),
               static_cast<std::uint64_t>(parts_.spec.seed())),
      topology_(parameter_server::TopologyOf(parts_.spec)),
      pipe_(parts_.self, parts_.tables.slots.size(), PatienceOf(parts_.spec),
            parameter_server::NamesRows(parts_.spec, parts_.workload.sparse() != nullptr)),
      work_({.spec = parts_.spec,
             .workload = parts_.workload,
             .batches = batches_,
             .tables = parts_.tables,
             .stopwatch = parts_.stopwatch,
             .clock = parts_.clock,
             .pipe = pipe_},
            {.done = [this](const LeaseWork::Done& done) { OnDone(done); },
             .refused =
                 [this](const LeaseRun& leases) {
                   parts_.desk.Refused(leases);
                   parts_.metrics.refused.Increment();
                 },
             .are_next =
                 [this](const LeaseRun& leases) { return parts_.desk.IsNext(leases.first); }}),
      store_(pipe_, parts_.tables.course_slot()),
      stop_(parts_.spec.stop()) {}

absl::Status LeaseLoop::Run() {
  absl::Status status;
  while (status.ok() || absl::IsUnavailable(status)) {
    const Orders orders = parts_.desk.Read();
    if (!orders.exit.empty()) {
      log::Info("the worker ends", {{"why", orders.exit}});
      pipe_.Leave();
      parts_.links.Close();
      return absl::OkStatus();
    }
    if (!orders.view || orders.view->number <= view_.number) {
      (void)parts_.desk.WaitForChange(orders.stamp, absl::Seconds(1));
      continue;
    }
    status = InView(*orders.view);
    const std::vector<membership::MemberId> unreachable = parts_.links.Unreachable(status);
    pipe_.Leave();
    parts_.links.Close();
    if (view_ended_ == absl::InfinitePast()) view_ended_ = parts_.clock.Now();
    parts_.stopwatch.Enter(Activity::kRecovery);
    log::Info("the view has ended here", {{"view", membership::EpochOf(view_.number)},
                                          {"why", std::string(status.message())}});
    parts_.desk.Broken(unreachable);
  }
  parts_.board.SetFailure(std::string(status.message()));
  parts_.poke();
  return status;
}

// Views.

absl::Status LeaseLoop::EnterView(const membership::View& view) {
  parts_.stopwatch.Enter(Activity::kRecovery);
  if (view_.number != 0) parts_.metrics.recoveries.Increment();
  view_ = view;
  audit_.reset();
  parts_.links.Fence(view.number);
  parts_.desk.Install(view);
  parameter_server::ClientView mine = parameter_server::ClientViewOf(view, parts_.self);
  if (mine.joined == 0) return absl::OkStatus();
  mine.group = parameter_server::GroupOf(view, topology_, parts_.self);
  mine.reductions = ReductionsOf(parts_.tables);
  const absl::StatusOr<transport::Mesh*> mesh =
      parts_.links.Open(view, parts_.self, net::Deadline::After(kOpenPatience));
  if (!mesh.ok()) return client::ViewEnded(mesh.status());
  pipe_.Enter(mine, parameter_server::RanksOf(view), **mesh);
  RETURN_IF_ERROR(work_.AwaitWelcome());
  parts_.desk.Running();
  parts_.metrics.view.Set(static_cast<double>(membership::EpochOf(view.number)));
  parts_.metrics.members.Set(static_cast<double>(view.workers().size()));
  if (started_ == absl::InfinitePast()) started_ = parts_.clock.Now();
  parts_.board.StartPace(batches_.SamplesUpTo(std::max<std::int64_t>(0, told_)));
  log::Info("leases begin", {{"view", membership::EpochOf(view.number)},
                             {"incarnation", membership::IncarnationOf(view.number)},
                             {"workers", view.workers().size()},
                             {"servers", view.servers().size()},
                             {"pushesThrough", mine.group.empty() ? "" : mine.group[0].pod_uid}});
  if (parts_.on_view) parts_.on_view(view.number);
  return absl::OkStatus();
}

absl::Status LeaseLoop::InView(const membership::View& view) {
  RETURN_IF_ERROR(EnterView(view));
  const bool client = parameter_server::ClientViewOf(view, parts_.self).joined != 0;
  while (true) {
    const Orders orders = parts_.desk.Read();
    if (!orders.exit.empty() || orders.view->number != view.number) {
      return absl::UnavailableError("a newer view has begun, or the process is to end");
    }
    if (client) {
      RETURN_IF_ERROR(Turn(orders));
    } else {
      (void)parts_.desk.WaitForChange(orders.stamp, absl::Seconds(1));  // whoever left waits
    }
  }
}

absl::Status LeaseLoop::Turn(const Orders& orders) {
  RETURN_IF_ERROR(work_.Poll());
  TakeSettings(orders.settings);
  Tell(orders);
  if (orders.evaluate > evaluated_) return Evaluate(orders);
  if (orders.conclude && !parts_.board.has_result()) return Conclude(orders);
  const std::optional<LeaseRun> leases = parts_.desk.Take(work_.portions());
  if (!leases) return WaitForOrders(orders);
  idle_since_ = absl::InfiniteFuture();
  absl::Status worked = Pace(leases->first);
  if (worked.ok()) worked = work_.Work(*leases);
  if (!worked.ok()) parts_.desk.Dropped(*leases);
  if (absl::IsAborted(worked)) worked = absl::OkStatus();  // not these, not now
  parts_.stopwatch.Enter(Activity::kIdle);
  if (work_.fetch_seconds() > 0) parts_.metrics.fetch_seconds.Observe(work_.fetch_seconds());
  return worked;
}

absl::Status LeaseLoop::WaitForOrders(const Orders& orders) {
  const absl::Time now = parts_.clock.Now();
  if (work_.on_their_way() > 0) {
    parts_.stopwatch.Enter(Activity::kExchange);
    idle_since_ = absl::InfiniteFuture();
    return work_.AwaitAll(kLook);
  }
  parts_.stopwatch.Enter(Activity::kIdle);
  idle_since_ = std::min(idle_since_, now);
  if (now - idle_since_ >= kRestAfter) work_.Rest();
  if (!orders.leaving) AskForCourse();
  (void)parts_.desk.WaitForChange(orders.stamp, kLook);
  return absl::OkStatus();
}

absl::Status LeaseLoop::Pace(Lease first) {
  const absl::Duration delay = StepDelay(parts_.spec);
  if (delay <= absl::ZeroDuration() || first == parameter_server::kFirstValues) {
    return absl::OkStatus();
  }
  if (paced_lease_ != first) {
    paced_lease_ = first;
    paced_until_ = net::Deadline::After(delay);
  }
  parts_.stopwatch.Enter(Activity::kIdle);
  return work_.PollUntil(paced_until_);
}

void LeaseLoop::OnDone(const LeaseWork::Done& done) {
  parts_.desk.Done(done.leases);
  if (done.leases.first == parameter_server::kFirstValues) {
    log::Info("training starts from the seed", {{"seed", parts_.spec.seed()}});
    return;
  }
  const std::int64_t step = parameter_server::StepOfLease(done.leases.first, work_.portions()) + 1;
  const absl::Time now = parts_.clock.Now();
  if (done.samples > 0) Smooth(MeansOf(done.sums), training_);
  parts_.step_files.Completed(step);
  parts_.metrics.steps.Increment();
  parts_.metrics.samples.Increment(static_cast<double>(done.samples));
  if (training_) parts_.metrics.loss.Set(training_->front());
  if (last_done_ != absl::InfinitePast()) {
    parts_.metrics.step_seconds.Observe(absl::ToDoubleSeconds(now - last_done_));
  }
  last_done_ = now;
  if (view_ended_ == absl::InfinitePast()) return;
  const double seconds = absl::ToDoubleSeconds(now - view_ended_);
  parts_.metrics.recovery_seconds.Observe(seconds);
  log::Info("first lease of the view", {{"batch", step}, {"secondsSinceLastView", seconds}});
  view_ended_ = absl::InfinitePast();
}

// What is told.

bool LeaseLoop::IsFirst() const {
  const auto clients = view_.workers();
  return !clients.empty() && clients.front().id == parts_.self;
}

void LeaseLoop::TakeSettings(const membership::Settings& settings) {
  if (settings.generation <= settings_generation_) return;
  settings_generation_ = settings.generation;
  const absl::StatusOr<v1alpha1::Settings> values = membership::ParseSettings(settings);
  if (!values.ok()) {
    log::Warning("settings that cannot be read are left aside",
                 {{"generation", settings.generation}});
    return;
  }
  stop_ = values->has_stop() ? values->stop() : parts_.spec.stop();
}

void LeaseLoop::Tell(const Orders& orders) {
  if (orders.settled == told_) return;
  told_ = orders.settled;
  parts_.step_files.Settled(orders.settled);
  parts_.metrics.step.Set(static_cast<double>(orders.settled));
  ReportProgress(orders);
  if (IsFirst()) WriteAudit(orders.settled);
}

Course LeaseLoop::CourseAt(std::int64_t step) const {
  Course course = record_.course;
  course.step = step;
  course.training = training_.value_or(Values());
  return course;
}

void LeaseLoop::ReportProgress(const Orders& orders) {
  v1alpha1::Progress progress;
  progress.set_step(orders.settled);
  progress.set_epoch(orders.settled == 0 ? 1 : batches_.At(orders.settled).epoch);
  progress.set_samples(batches_.SamplesUpTo(orders.settled));
  // Before its first lease this worker has no training metrics to tell.
  const Course course = CourseAt(training_ ? orders.settled : 0);
  for (const auto& [name, value] : Metrics(course, declared().metrics, /*best=*/false)) {
    (*progress.mutable_metrics())[name] = value;
  }
  if (training_) progress.set_loss(training_->front());
  const std::int64_t total = Total();
  if (total < std::numeric_limits<std::int64_t>::max()) progress.set_total_steps(total);
  progress.set_workers(static_cast<std::int64_t>(view_.workers().size()));
  parts_.board.SetProgress(std::move(progress));
}

// A line is a function of its step, and what is settled is in every slot. Where a restore has
// undone steps their lines stay: they are made again with the same samples.
void LeaseLoop::WriteAudit(std::int64_t settled) {
  if (!parts_.spec.dataset().audit_use() || settled < 1) return;
  absl::Status status;
  if (audit_ == nullptr) {
    absl::StatusOr<std::unique_ptr<data::AuditLog>> opened =
        data::AuditLog::Open(parts_.job_dir, batches_);
    status = opened.status();
    if (opened.ok()) audit_ = *std::move(opened);
  }
  if (status.ok()) status = audit_->AppendUpTo(settled);
  // Nothing is lost: the next call writes what is missing.
  if (!status.ok() && !audit_failing_) {
    log::Warning("the audit cannot be written", {{"why", std::string(status.message())}});
  }
  audit_failing_ = !status.ok();
}

void LeaseLoop::AskForCourse() {
  const absl::Time now = parts_.clock.Now();
  if (declared().validation_samples == 0 || now - asked_ < kAskEvery) return;
  asked_ = now;
  store_.Ask([this](const CourseRecord& record) {
    if (record.turn >= record_.turn) record_ = record;
    told_ = -1;  // with its validation
  });
}

// Validations and the end.

bool LeaseLoop::MayKeep() const {
  return parts_.spec.validation().keep_best() || parts_.spec.validation().patience() > 0 ||
         stop_.has_target();
}

absl::Status LeaseLoop::FetchForGood(const Orders& orders, bool at_rest, bool validation_only) {
  work_.Rest();  // nobody waits for a validation
  const auto wanted = [&] {
    const Orders now = parts_.desk.Read();
    return now.evaluate == orders.evaluate && now.conclude == orders.conclude;
  };
  work_.ForgetCopy();
  return work_.Fetch(at_rest ? consistency::kAtRest : 0, wanted, validation_only);
}

absl::Status LeaseLoop::Evaluate(const Orders& orders) {
  parts_.stopwatch.Enter(Activity::kExchange);
  RETURN_IF_ERROR(work_.AwaitAll(absl::InfiniteDuration()));
  ASSIGN_OR_RETURN(record_, store_.Read());
  if (record_.turn < orders.evaluate) {
    const bool last = orders.settled >= Total();
    const bool at_rest = last || spec::AllWaitForAll(parts_.spec);
    if (!at_rest) pipe_.StandDown();  // the others work on meanwhile
    const absl::Status fetched =
        FetchForGood(orders, at_rest, declared().validation_samples > 0 && !MayKeep());
    if (absl::IsAborted(fetched)) return absl::OkStatus();  // not wanted any more
    RETURN_IF_ERROR(fetched);
    parts_.stopwatch.Enter(Activity::kCompute);
    if (declared().validation_samples > 0) {
      std::vector<double> columns(
          static_cast<std::size_t>(ValidationColumns(declared().metrics.size())));
      RETURN_IF_ERROR(ValidateShare(parts_.workload, 0, 1, columns));
      const Validated validated =
          AfterValidation(CourseAt(orders.settled), ValidationMeans(columns));
      record_.course = validated.course;
      record_.ends_training =
          EndsTraining(record_.course, stop_, parts_.spec.validation(), declared().metrics);
      const bool keep = (validated.best && parts_.spec.validation().keep_best()) ||
                        (record_.ends_training && !parts_.spec.validation().keep_best());
      record_.turn = orders.evaluate;
      parts_.stopwatch.Enter(Activity::kExchange);
      ASSIGN_OR_RETURN(record_, store_.Write(record_, keep ? parts_.workload.parameters()
                                                           : std::span<const float>()));
    }
  }
  evaluated_ = orders.evaluate;
  told_ = -1;
  parts_.desk.Evaluated(orders.evaluate, record_.ends_training);
  std::string found;  // such as "loss=0.31 accuracy=0.9"
  for (std::size_t i = 0; i < declared().metrics.size(); ++i) {
    absl::StrAppend(&found, i == 0 ? "" : " ", declared().metrics[i], "=",
                    record_.course.validation[i]);
  }
  log::Info("validated",
            {{"turn", orders.evaluate}, {"step", record_.course.step}, {"metrics", found}});
  return absl::OkStatus();
}

absl::Status LeaseLoop::Conclude(const Orders& orders) {
  parts_.stopwatch.Enter(Activity::kExchange);
  RETURN_IF_ERROR(work_.AwaitAll(absl::InfiniteDuration()));
  ASSIGN_OR_RETURN(record_, store_.Read());
  // Kept are the best parameters, or those whose validation ended training; else the newest count.
  work_.ForgetCopy();
  const bool keep_best = parts_.spec.validation().keep_best();
  if (record_.set != 0 && (keep_best || record_.ends_training)) {
    RETURN_IF_ERROR(store_.ReadKept(record_, parts_.workload.parameters()));
  } else {
    const absl::Status fetched = FetchForGood(orders, /*at_rest=*/true);
    if (absl::IsAborted(fetched)) return absl::OkStatus();
    RETURN_IF_ERROR(fetched);
  }
  std::vector<checkpoint::TensorView> tensors;
  for (const engine::Tensor& tensor : declared().tensors) {
    tensors.push_back(checkpoint::MakeView(tensor.name, tensor.shape,
                                           std::span<const float>(parts_.workload.parameters())
                                               .subspan(static_cast<std::size_t>(tensor.offset),
                                                        static_cast<std::size_t>(tensor.size))));
  }
  parts_.stopwatch.Enter(Activity::kCheckpoint);
  ASSIGN_OR_RETURN(v1alpha1::Result result,
                   WriteResult(parts_.storage, tensors, keep_best, CourseAt(orders.settled),
                               declared().metrics, stop_, batches_, parts_.model_metadata));
  result.set_seconds(absl::ToDoubleSeconds(parts_.clock.Now() - started_));
  told_ = -1;
  Tell(orders);
  log::Info("training has ended", {{"steps", result.steps()}, {"model", result.model().sha256()}});
  parts_.board.SetResult(result);
  parts_.stopwatch.Enter(Activity::kIdle);
  parts_.poke();
  return absl::OkStatus();
}

}  // namespace starling::worker

// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/leases.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "api/spec/consistency.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/worker/layout.h"
#include "trainer/worker/result.h"
#include "trainer/worker/validation.h"

namespace starling::worker {
namespace {

using consistency::LeaseRun;

// How often a worker that waits looks at its links.
constexpr absl::Duration kLook = absl::Milliseconds(2);
// After so long without a lease others do not wait for this worker any more.
constexpr absl::Duration kRestAfter = absl::Milliseconds(10);
// How often the course on the servers is looked at, to tell it.
constexpr absl::Duration kAskEvery = absl::Seconds(1);
constexpr double kSmoothing = 0.1;

void Smooth(const Values& newest, std::optional<Values>& smoothed) {
  if (!smoothed) smoothed = newest;
  for (std::size_t i = 0; i < newest.size(); ++i) {
    (*smoothed)[i] += kSmoothing * (newest[i] - (*smoothed)[i]);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkSource>> Leases::Create(const Context& context) {
  ASSIGN_OR_RETURN(const parameter_server::Layout layout,
                   LayoutOf(context.spec(), context.parts.workload));
  ASSIGN_OR_RETURN(parameter_server::JobTables tables,
                   parameter_server::TablesOf(context.spec(), layout));
  return std::unique_ptr<WorkSource>(new Leases(context, layout, std::move(tables)));
}

Leases::Leases(const Context& context, const parameter_server::Layout& layout,
               parameter_server::JobTables tables)
    : context_(context),
      tables_(std::move(tables)),
      queue_({.id = context.config.self, .layout = layout}),
      exchange_(
          {.spec = context.spec(),
           .self = context.config.self,
           .workload = context_.parts.workload,
           .tables = tables_,
           .clock = context.parts.clock},
          {.done = [this](const client::ParameterServerExchange::Done& done) { OnDone(done); },
           .refused = [this](const LeaseRun& leases) { OnRefused(leases); },
           .are_next = [this](const LeaseRun& leases) { return queue_.IsNext(leases.first); },
           .started_over = [this] { computer_.ForgetCopy(); }}),
      computer_({.spec = context.spec(),
                 .workload = context_.parts.workload,
                 .batches = context.batches,
                 .exchange = exchange_,
                 .stopwatch = context.stopwatch,
                 .recorder = context.parts.recorder}),
      store_(exchange_.pipe(), tables_.course_shard()) {
  if (context.parts.recorder != nullptr) exchange_.RecordTo(*context.parts.recorder);
}

void Leases::Hear(const membership::Directive& directive, membership::ViewNumber installed) {
  queue_.OnDirective(directive, installed);
  context_.shell.Nudge();
}

// Views.

absl::Status Leases::Enter(const membership::View& view) {
  view_ = view;
  queue_.Enter(view);
  return exchange_.Enter(view, context_.links.mesh());
}

absl::Status Leases::Begin(const membership::Run&) {
  const auto clients = view_.workers();
  const bool first = !clients.empty() && clients.front().id == context_.config.self;
  // Where a restore has undone steps their lines in the audit stay true: they are made again with
  // the same samples.
  context_.progress.ViewBegins(view_, told_.value_or(0), /*undone=*/false, first);
  context_.progress.TravelBy(exchange_.paths());
  return absl::OkStatus();
}

// Work.

absl::Status Leases::Work() {
  RETURN_IF_ERROR(exchange_.Poll());
  const LeaseOrders orders = queue_.Read();
  if (orders.view == 0) return WaitForOrders();
  if (orders.settled != told_) Tell(orders.settled);
  if (orders.evaluate > evaluated_) return Evaluate(orders);
  if (orders.conclude && !context_.board.has_result()) return Conclude(orders);
  const std::optional<LeaseRun> leases = queue_.Take(exchange_.portions());
  if (!leases) return WaitForOrders();
  idle_since_ = absl::InfiniteFuture();
  absl::Status worked = Pace(leases->first);
  if (again_.erase(leases->first) > 0) context_.stopwatch.CountAs(Activity::kRepeated);
  if (worked.ok()) worked = WorkOff(*leases);
  context_.stopwatch.CountAs(std::nullopt);
  if (!worked.ok()) {
    queue_.Dropped(*leases);
    again_.insert(leases->first);
  }
  if (absl::IsAborted(worked)) worked = absl::OkStatus();  // not these, not now
  context_.stopwatch.Enter(Activity::kIdle);
  const double fetch_seconds = exchange_.fetch_seconds();
  if (fetch_seconds > 0) context_.metrics.fetch_seconds.Observe(fetch_seconds);
  return worked;
}

absl::Status Leases::WorkOff(const LeaseRun& leases) {
  if (leases.first == parameter_server::kFirstValues) return exchange_.AssignFirstValues();
  const std::int64_t portions = exchange_.portions();
  StepRequest request;
  request.step = parameter_server::StepOfLease(leases.first, portions) + 1;
  request.portions = {parameter_server::PortionOfLease(leases.first, portions),
                      parameter_server::PortionOfLease(leases.end() - 1, portions) + 1};
  request.of = portions;
  request.leases = leases;
  request.next_is_alike = false;
  ASSIGN_OR_RETURN(const StepOutcome outcome, computer_.Run(request));
  context_.metrics.exchange_seconds.Observe(absl::ToDoubleSeconds(outcome.exchange));
  return outcome.finite ? absl::OkStatus() : Diverged(request.step, outcome);
}

absl::Status Leases::WaitForOrders() {
  const absl::Time now = context_.parts.clock.Now();
  if (exchange_.on_their_way() > 0) {
    context_.stopwatch.Enter(Activity::kExchange);
    idle_since_ = absl::InfiniteFuture();
    return exchange_.AwaitAll(kLook);
  }
  context_.stopwatch.Enter(Activity::kIdle);
  idle_since_ = std::min(idle_since_, now);
  if (now - idle_since_ >= kRestAfter) exchange_.Rest();
  AskForCourse();
  (void)context_.shell.WaitForNews(kLook);
  return absl::OkStatus();
}

absl::Status Leases::Pace(Lease first) {
  const absl::Duration delay = context_.step_delay();
  if (delay <= absl::ZeroDuration() || first == parameter_server::kFirstValues) {
    return absl::OkStatus();
  }
  if (paced_lease_ != first) {
    paced_lease_ = first;
    paced_until_ = net::Deadline::After(delay);
  }
  context_.stopwatch.Enter(Activity::kIdle);
  return exchange_.PollUntil(paced_until_);
}

void Leases::OnDone(const client::ParameterServerExchange::Done& done) {
  queue_.Done(done.leases);
  context_.parts.notify();
  if (done.leases.first == parameter_server::kFirstValues) {
    log::Info("training starts from the seed", {{"seed", context_.spec().seed()}});
    return;
  }
  if (done.samples > 0) {
    Smooth(MeansOf(FromColumns(done.statistics), context_.declared()), training_);
  }
  const std::int64_t step =
      parameter_server::StepOfLease(done.leases.first, exchange_.portions()) + 1;
  context_.progress.Completed(step, done.samples,
                              training_ ? std::optional(training_->front()) : std::nullopt);
}

void Leases::OnRefused(const LeaseRun& leases) {
  queue_.Refused(leases);
  context_.parts.notify();
  context_.metrics.refused.Increment();
}

// What is told.

Course Leases::CourseAt(std::int64_t step) const {
  Course course = record_.course;
  course.step = step;
  course.training = training_.value_or(Values());
  return course;
}

void Leases::Tell(std::int64_t settled) {
  told_ = settled;
  context_.metrics.step.Set(static_cast<double>(settled));
  context_.progress.Exchanged(exchange_.volume());
  // Before its first lease this worker has no training metrics to tell.
  context_.progress.Settled(settled, CourseAt(training_ ? settled : 0));
}

void Leases::AskForCourse() {
  const absl::Time now = context_.parts.clock.Now();
  if (context_.declared().validation_samples == 0 || now - asked_ < kAskEvery) return;
  const bool leaving =
      context_.shell.Ask([](const membership::Member& machine) { return machine.leaving(); });
  if (leaving) return;
  asked_ = now;
  store_.Ask([this](const CourseRecord& record) { OnRecord(record); });
}

void Leases::OnRecord(const CourseRecord& record) {
  if (record.turn < record_.turn) return;
  record_ = record;
  if (told_) Tell(*told_);  // with its validation
}

// Validations and the end.

bool Leases::MayKeep() const {
  return context_.spec().validation().keep_best() || context_.spec().validation().patience() > 0 ||
         context_.progress.stop().has_target();
}

absl::Status Leases::FetchForGood(const LeaseOrders& orders, bool at_rest, bool validation_only) {
  exchange_.Rest();  // nobody waits for a validation
  const auto wanted = [&] {
    const LeaseOrders now = queue_.Read();
    return now.evaluate == orders.evaluate && now.conclude == orders.conclude;
  };
  computer_.ForgetCopy();
  return exchange_.Fetch(at_rest ? consistency::kAtRest : 0, wanted, validation_only);
}

absl::Status Leases::Evaluate(const LeaseOrders& orders) {
  const auto announced = context_.stopwatch.Announce("validation");
  context_.stopwatch.Enter(Activity::kExchange);
  RETURN_IF_ERROR(exchange_.AwaitAll(absl::InfiniteDuration()));
  ASSIGN_OR_RETURN(record_, store_.Read());
  if (record_.turn < orders.evaluate) {
    const bool last = orders.settled >= context_.progress.Total();
    const bool at_rest = last || spec::AllWaitForAll(context_.spec());
    if (!at_rest) exchange_.pipe().StandDown();  // the others work on meanwhile
    const absl::Status fetched =
        FetchForGood(orders, at_rest, context_.declared().validation_samples > 0 && !MayKeep());
    if (absl::IsAborted(fetched)) return absl::OkStatus();  // not wanted any more
    RETURN_IF_ERROR(fetched);
    context_.stopwatch.Enter(Activity::kCompute);
    if (context_.declared().validation_samples > 0) {
      std::vector<double> columns(
          static_cast<std::size_t>(ValidationColumns(context_.declared().metrics.size())));
      RETURN_IF_ERROR(ValidateShare(context_.parts.workload, 0, 1, columns));
      const Validated validated =
          AfterValidation(CourseAt(orders.settled), ValidationMeans(columns, context_.declared()),
                          context_.progress.stop(), context_.declared().metrics);
      record_.course = validated.course;
      record_.ends_training =
          EndsTraining(record_.course, context_.progress.stop(), context_.spec().validation(),
                       context_.declared().metrics);
      const bool keep = (validated.best && context_.spec().validation().keep_best()) ||
                        (record_.ends_training && !context_.spec().validation().keep_best());
      record_.turn = orders.evaluate;
      context_.stopwatch.Enter(Activity::kExchange);
      ASSIGN_OR_RETURN(record_, store_.Write(record_, keep ? context_.parts.workload.parameters()
                                                           : std::span<const float>()));
    }
  }
  evaluated_ = orders.evaluate;
  Tell(orders.settled);
  queue_.Evaluated(orders.evaluate, record_.ends_training);
  context_.parts.notify();
  std::string found;  // such as "loss=0.31 accuracy=0.9"
  for (std::size_t i = 0; i < context_.declared().metrics.size(); ++i) {
    absl::StrAppend(&found, i == 0 ? "" : " ", context_.declared().metrics[i], "=",
                    record_.course.validation[i]);
  }
  log::Info("validated",
            {{"turn", orders.evaluate}, {"step", record_.course.step}, {"metrics", found}});
  return absl::OkStatus();
}

absl::Status Leases::Conclude(const LeaseOrders& orders) {
  context_.stopwatch.Enter(Activity::kExchange);
  RETURN_IF_ERROR(exchange_.AwaitAll(absl::InfiniteDuration()));
  ASSIGN_OR_RETURN(record_, store_.Read());
  // Kept are the best parameters, or those whose validation ended training; else the newest count.
  computer_.ForgetCopy();
  const bool keep_best = context_.spec().validation().keep_best();
  if (record_.set != 0 && (keep_best || record_.ends_training)) {
    RETURN_IF_ERROR(store_.ReadKept(record_, context_.parts.workload.parameters()));
  } else {
    const absl::Status fetched = FetchForGood(orders, /*at_rest=*/true);
    if (absl::IsAborted(fetched)) return absl::OkStatus();
    RETURN_IF_ERROR(fetched);
  }
  std::vector<checkpoint::TensorView> tensors;
  for (const engine::Tensor& tensor : context_.declared().tensors) {
    tensors.push_back(
        checkpoint::MakeView(tensor.name, tensor.shape,
                             std::span<const float>(context_.parts.workload.parameters())
                                 .subspan(static_cast<std::size_t>(tensor.offset),
                                          static_cast<std::size_t>(tensor.size))));
  }
  context_.stopwatch.Enter(Activity::kCheckpoint);
  ASSIGN_OR_RETURN(v1alpha1::Result result,
                   WriteResult(context_.parts.storage, tensors, keep_best, CourseAt(orders.settled),
                               context_.declared().metrics, context_.progress.stop(),
                               context_.batches, context_.declared().model_metadata));
  result.set_seconds(context_.progress.Seconds());
  Tell(orders.settled);
  context_.progress.Conclude(result);
  context_.stopwatch.Enter(Activity::kIdle);
  return absl::OkStatus();
}

}  // namespace starling::worker

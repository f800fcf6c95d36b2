// SPDX-License-Identifier: Apache-2.0
#include "trainer/embed/handover.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "trainer/kernels/span_math.h"

namespace starling::embed {
namespace {

constexpr membership::ViewNumber kAllViews = std::numeric_limits<membership::ViewNumber>::max();

// Names, types and shapes of what the program holds, in order. Bytes of the state are copied
// between members without them, so who has others must not be let in.
std::string LayoutOf(const Description& description) {
  std::string layout;
  for (const OwnState& own : description.state) {
    absl::StrAppend(&layout, own.part.name, " ", static_cast<int>(own.part.type), " ",
                    absl::StrJoin(own.part.shape, "x"), own.model ? " model\n" : "\n");
  }
  absl::StrAppend(&layout, "buckets ", absl::StrJoin(description.buckets, " "), "\n");
  absl::StrAppend(&layout, "metrics ", absl::StrJoin(description.metrics, " "), "\n");
  return layout;
}

workload::Declaration DeclarationOf(const Description& description) {
  workload::Declaration declaration;
  declaration.metrics = description.metrics;
  declaration.samples = description.samples;
  declaration.data_digest = bytes::Sha256Hex(
      absl::StrCat(description.samples, " ", description.data_digest, "\n", LayoutOf(description)));
  declaration.numeric_identity = description.numeric_identity;
  std::int64_t end = 0;
  for (const std::int64_t elements : description.buckets) {
    declaration.buckets.push_back({end, end + elements});
    end += elements;
  }
  return declaration;
}

}  // namespace

Handover::Handover(Description description, const data::Batches& batches, bool reproducible)
    : Workload(DeclarationOf(description)),
      state_(std::move(description.state)),
      copied_(std::ranges::any_of(state_, &OwnState::copied)),
      batches_(batches),
      reproducible_(reproducible) {
  const std::vector<engine::Bucket>& buckets = declaration().buckets;
  own_gradients_.resize(buckets.empty() ? 0 : static_cast<std::size_t>(buckets.back().end));
  gradients_ = own_gradients_;
}

bool Handover::PlaceGradients(std::span<float> memory) {
  gradients_ = memory;
  own_gradients_ = {};
  return true;
}

bool Handover::Ending() const { return ended_ || interrupted_below_ == kAllViews; }

bool Handover::Interrupted() const { return Ending() || present_.view < interrupted_below_; }

// The program's side.

void Handover::TakeAnswer() {
  if (std::exchange(asked_, false)) fresh_ = true;
}

absl::StatusOr<Handover::Given> Handover::Next(Ticket& ticket) {
  const sync::MutexLock lock(mutex_);
  if (held_ == Held::kStep) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", present_.step,
                     " was given to the program, which asks for the next one without "
                     "having reduced it: call reduce once for each step"));
  }
  held_ = Held::kNothing;
  still_ = true;
  TakeAnswer();
  changed_.NotifyAll();
  while (!offer_ && !over_ && !ended_ && !Asks()) changed_.Wait(mutex_);
  still_ = false;
  // The end of training is told although the worker has ended since: another member has written the
  // result, and this program has been slow to ask.
  if (ended_ && !over_) return Given::kEnded;
  if (!offer_ && !over_) {
    asked_ = true;
    return Given::kStateWanted;
  }
  fresh_ = false;
  const bool given = offer_.has_value();
  ticket = std::exchange(offer_, std::nullopt).value_or(Ticket{});
  ticket.replaced = std::exchange(replaced_, false);
  if (!given) return Given::kOver;
  ready_.assign(declaration().buckets.size(), false);
  logged_.assign(declaration().metrics.size(), std::nullopt);
  summed_.assign(declaration().metrics.size(), std::nullopt);
  held_ = Held::kStep;
  return Given::kStep;
}

absl::Status Handover::Ready(std::int64_t bucket) {
  const sync::MutexLock lock(mutex_);
  if (held_ == Held::kVoid) return absl::OkStatus();
  if (held_ != Held::kStep) {
    return absl::FailedPreconditionError("a bucket is ready, but no step is given to the program");
  }
  if (bucket < 0 || bucket >= static_cast<std::int64_t>(ready_.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", bucket, " of step ", present_.step, ": there are ", ready_.size()));
  }
  const auto index = static_cast<std::size_t>(bucket);
  if (ready_[index]) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", bucket, " of step ", present_.step,
                     " is ready for the second time: a step has one backward pass"));
  }
  ready_[index] = true;
  if (client_ != nullptr) client_->push(bucket);
  return absl::OkStatus();
}

absl::Status Handover::CheckMetric(std::int64_t metric) const {
  if (held_ != Held::kStep && held_ != Held::kVoid) {
    return absl::FailedPreconditionError("a metric is logged, but no step is given to the program");
  }
  if (metric < 0 || metric >= static_cast<std::int64_t>(logged_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("metric ", metric, ": there are ",
                                                   logged_.size(), ", declared before the start"));
  }
  return absl::OkStatus();
}

absl::Status Handover::Log(std::int64_t metric, double value) {
  const sync::MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckMetric(metric));
  logged_[static_cast<std::size_t>(metric)] = value;
  return absl::OkStatus();
}

absl::Status Handover::LogSum(std::int64_t metric, workload::Sum sum) {
  const sync::MutexLock lock(mutex_);
  RETURN_IF_ERROR(CheckMetric(metric));
  if (metric == 0 || !(sum.count >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("metric ", metric, ", a sum over ", sum.count,
                     ": the count is from 0, and the loss is counted by the step's weight"));
  }
  summed_[static_cast<std::size_t>(metric)] = sum;
  return absl::OkStatus();
}

double Handover::Mean(std::int64_t metric) const {
  const sync::MutexLock lock(mutex_);
  const bool known = metric >= 0 && metric < static_cast<std::int64_t>(means_.size());
  return known ? means_[static_cast<std::size_t>(metric)] : 0;
}

void Handover::FillMissing() {
  for (std::size_t i = 0; i < ready_.size(); ++i) {
    if (ready_[i] || client_ == nullptr) continue;
    const engine::Bucket& bucket = declaration().buckets[i];
    std::fill(gradients_.begin() + bucket.begin, gradients_.begin() + bucket.end, 0.0F);
    client_->push(static_cast<std::int64_t>(i));
  }
}

absl::StatusOr<Fate> Handover::Reduce(double weight) {
  if (!(weight >= 0) || std::isinf(weight)) {
    return absl::InvalidArgumentError(absl::StrCat("weight ", weight, ": must be a number from 0"));
  }
  sync::MutexLock lock(mutex_);
  if (held_ == Held::kVoid) {
    held_ = Held::kNothing;
    return Fate::kDropped;
  }
  if (held_ != Held::kStep) {
    return absl::FailedPreconditionError(
        "reduce was called, but no step is given to the program: each step is reduced once");
  }
  FillMissing();
  // What was not logged is not known, which a mean of all members then is not either.
  sums_.assign(logged_.size(), {0, weight});
  for (std::size_t i = 0; i < logged_.size() && weight > 0; ++i) {
    sums_[i].sum = logged_[i].value_or(std::numeric_limits<double>::quiet_NaN()) * weight;
  }
  for (std::size_t i = 0; i < summed_.size(); ++i) {
    if (summed_[i]) sums_[i] = *summed_[i];
  }
  held_ = Held::kReduced;
  fate_.reset();
  changed_.NotifyAll();
  while (!fate_ && !ended_) changed_.Wait(mutex_);
  held_ = Held::kNothing;
  const Fate fate = fate_.value_or(Fate::kDropped);
  // Most programs' weights add up to one.
  if (fate == Fate::kCommitted && weight_ > 0 && weight_ != 1) {
    kernels::Scale(static_cast<float>(1 / weight_), gradients_);
  }
  return fate;
}

bool Handover::MayFinish() {
  const sync::MutexLock lock(mutex_);
  TakeAnswer();
  if (IsFresh() || Ending()) return true;
  asked_ = true;
  return false;
}

void Handover::Finish() {
  const sync::MutexLock lock(mutex_);
  if (held_ == Held::kStep) held_ = Held::kVoid;
  still_ = true;
  finished_ = true;
  changed_.NotifyAll();
}

Ticket Handover::view() const {
  const sync::MutexLock lock(mutex_);
  return present_;
}

std::vector<data::Range> Handover::Portions(std::int64_t step, std::int64_t rank,
                                            std::int64_t members) const {
  const std::int64_t batch = batches_.BatchSize(step);
  if (!reproducible_) return {data::Share(batch, rank, members)};
  const data::Range mine = data::Share(data::GroupCount(batch), rank, members);
  std::vector<data::Range> groups;
  for (std::int64_t group = mine.begin; group < mine.end; ++group) {
    groups.push_back(data::Group(batch, group));
  }
  return groups;
}

void Handover::Ended() {
  const sync::MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

// The worker's side.

std::int64_t Handover::FirstPosition() const {
  const std::vector<data::Range> mine = Portions(present_.step, present_.rank, present_.members);
  return batches_.At(present_.step).positions.begin + (mine.empty() ? 0 : mine.front().begin);
}

absl::Status Handover::Prepare(membership::ViewNumber view, const worker::StepRequest& request) {
  const sync::MutexLock lock(mutex_);
  present_ = {.step = request.step,
              .position = 0,
              .ids = {},
              .view = view,
              .rank = request.portions.begin,
              .members = request.of,
              .replaced = false,
              .repeated = request.step <= handed_out_,
              .interrupted = request.interrupted,
              .last = request.last};
  if (request.empty) return absl::OkStatus();
  present_.position = FirstPosition();
  if (!Portions(present_.step, present_.rank, present_.members).empty()) return absl::OkStatus();
  // Where no portion is the program's, nothing in the step waits for it: the sum would come over
  // gradients that it still reads, or it would write into the sum what does not count any more.
  while (!still_ && !Interrupted()) changed_.Wait(mutex_);
  if (still_) return absl::OkStatus();
  return absl::CancelledError("the view has ended before the program has come for its step");
}

void Handover::Offer(std::span<const std::int64_t> samples) {
  offer_ = present_;
  offer_->ids.assign(samples.begin(), samples.end());
  present_.position += static_cast<std::int64_t>(samples.size());
  handed_out_ = std::max(handed_out_, present_.step);
  changed_.NotifyAll();
}

void Handover::Withdraw() {
  offer_.reset();
  if (held_ == Held::kStep) held_ = Held::kVoid;
}

void Handover::Decide(Fate fate) {
  if (held_ != Held::kReduced) return;
  held_ = Held::kNothing;
  fate_ = fate;
  changed_.NotifyAll();
}

absl::StatusOr<workload::Sums> Handover::Compute(std::span<const std::int64_t> samples,
                                                 const workload::Client& client) {
  client.loaded();
  const sync::MutexLock lock(mutex_);
  if (finished_) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", present_.step, " is to be made, but the program has left its loop"));
  }
  Decide(Fate::kPartial);  // of the portion before
  client_ = &client;
  Offer(samples);
  while (held_ != Held::kReduced && !Interrupted()) changed_.Wait(mutex_);
  client_ = nullptr;
  if (held_ == Held::kReduced) return sums_;
  Withdraw();
  return absl::CancelledError("the view has ended before the program has computed its step");
}

absl::StatusOr<workload::Sums> Handover::Evaluate(std::int64_t /*begin*/, std::int64_t /*end*/) {
  return absl::UnimplementedError("a program with a loop of its own validates by itself");
}

void Handover::Applied(std::int64_t /*step*/, const worker::StepOutcome& outcome) {
  const sync::MutexLock lock(mutex_);
  weight_ = outcome.sums.front().count;
  means_ = outcome.training;
  if (held_ != Held::kReduced) {
    // No portion of this step was the program's, but the update is. It comes to reduce as always,
    // and may write its zeros over the sum until then.
    const std::vector<float> sum(gradients_.begin(), gradients_.end());
    Offer({});
    while (held_ != Held::kReduced && !Ending()) changed_.Wait(mutex_);
    Withdraw();
    std::ranges::copy(sum, gradients_.begin());
  }
  Decide(Fate::kCommitted);
}

void Handover::Dropped() {
  const sync::MutexLock lock(mutex_);
  over_ = false;
  Withdraw();
  Decide(Fate::kDropped);
}

void Handover::Register(checkpoint::StateParts& parts) {
  for (const OwnState& own : state_) {
    checkpoint::StatePart part = own.part;
    part.name = absl::StrCat("program/", part.name);
    parts.Add(std::move(part));
  }
}

std::optional<std::vector<checkpoint::TensorView>> Handover::Model() const {
  std::vector<checkpoint::TensorView> tensors;
  for (const OwnState& own : state_) {
    if (own.model) tensors.push_back({own.part.name, own.part.type, own.part.shape, own.part.data});
  }
  return tensors;
}

absl::Status Handover::AwaitBoundary() {
  const sync::MutexLock lock(mutex_);
  wanted_ = true;
  changed_.NotifyAll();
  while (!IsReadable() && !Ending()) changed_.Wait(mutex_);
  wanted_ = false;
  return IsReadable() ? absl::OkStatus() : absl::UnavailableError("the process is to end");
}

void Handover::Replaced() {
  const sync::MutexLock lock(mutex_);
  replaced_ = true;
}

void Handover::Over() {
  const sync::MutexLock lock(mutex_);
  over_ = true;
  changed_.NotifyAll();
}

bool Handover::Finished() const {
  const sync::MutexLock lock(mutex_);
  return finished_;
}

void Handover::Interrupt(membership::ViewNumber below) {
  const sync::MutexLock lock(mutex_);
  interrupted_below_ = std::max(interrupted_below_, below);
  changed_.NotifyAll();
}

}  // namespace starling::embed

// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/lease_work.h"

#include <algorithm>
#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "api/spec/consistency.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "starling/v1alpha1/training_job.pb.h"
#include "trainer/kernels/span_math.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/worker/slot_gradient.h"

namespace starling::worker {
namespace {

using consistency::LeaseRun;
using parameter_server::Entry;
using parameter_server::EntryKind;
using parameter_server::Lease;
using parameter_server::RowRange;
using parameter_server::Sequence;
using parameter_server::UpdateKind;

// Leases that may be without their acknowledgements before another is begun.
constexpr std::size_t kMostOnTheirWay = 4;
constexpr int kThreads = 2;  // the schema's default, for specs that were not resolved

consistency::Downpour DownpourOf(const v1alpha1::TrainingJobSpec& spec) {
  const v1alpha1::LocalSgd& local = spec.update().local_sgd();
  consistency::Downpour downpour;
  downpour.fetch_every = std::max<std::int64_t>(1, local.fetch_every());
  downpour.push_every = std::max<std::int64_t>(1, local.push_every());
  return downpour;
}

std::unique_ptr<consistency::EagerSender> EagerOf(const v1alpha1::TrainingJobSpec& spec) {
  const consistency::Options options = parameter_server::ConsistencyOf(spec);
  const auto* eager = std::get_if<consistency::EagerStaleSynchronous>(&options);
  if (eager == nullptr) return nullptr;
  consistency::EagerSender::Options sender;
  sender.bytes_per_second = eager->bytes_per_second;
  sender.priority = eager->priority;
  sender.seed = static_cast<std::uint64_t>(spec.seed());
  return std::make_unique<consistency::EagerSender>(sender);
}

std::unique_ptr<workload::Hogwild> HogwildOf(const v1alpha1::TrainingJobSpec& spec,
                                             workload::Workload& workload) {
  if (workload.sparse() == nullptr || !spec.update().has_hogwild()) return nullptr;
  const v1alpha1::Hogwild& hogwild = spec.update().hogwild();
  return std::make_unique<workload::Hogwild>(workload,
                                             hogwild.has_threads() ? hogwild.threads() : kThreads);
}

const compression::Codec& CodecOf(const parameter_server::JobTables& tables) {
  const absl::StatusOr<const compression::Codec*> codec = compression::FindCodec(tables.codec);
  STARLING_CHECK(codec.ok(), "the tables name a codec that there is");
  return **codec;
}

}  // namespace

LeaseWork::LeaseWork(const Parts& parts, Events events)
    : parts_(parts),
      events_(std::move(events)),
      downpour_(DownpourOf(parts.spec)),
      unit_(parameter_server::SamplesPerStep(parts.spec) / downpour_.push_every),
      portions_(parameter_server::PortionsOf(parts.spec)),
      in_step_(spec::WorksInStep(parts.spec)),
      factored_(parts.spec.update().has_activations()),
      codec_(parts.tables.codec),
      kkt_(parameter_server::KktPenaltyOf(parts.spec, parts.workload.sparse() != nullptr)),
      sparse_(parts.workload.sparse()),
      reader_(parts.pipe, parts.tables, parts.clock, parts.workload.parameters(),
              sparse_ != nullptr),
      hogwild_(HogwildOf(parts.spec, parts.workload)),
      eager_(EagerOf(parts.spec)),
      first_values_(parts.workload.parameters().begin(), parts.workload.parameters().end()),
      compressor_(CodecOf(parts.tables), parts.workload.parameters().size(),
                  parts.spec.compression().error_feedback()) {
  if (factored_) parts_.workload.KeepFactors();
  parts_.pipe.SetHandlers(
      {.started_over = [this] { StartOver(); },
       .ready =
           [this](parameter_server::Clock start) {
             clock_ = start;
             begun_ = true;
           },
       .acknowledged = [this](const parameter_server::Acknowledged& event) { On(event); }});
}

// Rule S7: nothing that was sent counts, and what is not sent is void.
void LeaseWork::StartOver() {
  begun_ = false;
  units_ = 0;
  flights_.clear();
  sent_.clear();
  compressor_.Clear();
}

void LeaseWork::On(const parameter_server::Acknowledged& event) {
  const auto sent = sent_.find({event.slot, event.sequence});
  if (sent == sent_.end()) return;
  const auto [lease, update] = sent->second;
  sent_.erase(sent);
  if (event.outcome == parameter_server::Outcome::kTaken) {
    compressor_.Commit(update);
  } else {
    compressor_.Discard(update);
  }
  Flight& flight = flights_[lease];
  --flight.open;
  if (event.outcome == parameter_server::Outcome::kRefused) {
    flight.refused = true;
    clock_ = std::max(clock_, event.start);  // of the running step
  }
  FinishIfAllIn(lease);
}

void LeaseWork::FinishIfAllIn(Lease lease) {
  const Flight flight = flights_[lease];
  if (!flight.sealed || flight.open > 0) return;
  flights_.erase(lease);
  if (flight.refused) {
    events_.refused(flight.leases);
  } else {
    events_.done({flight.leases, flight.sums, flight.samples});
  }
}

absl::Status LeaseWork::Await(const std::function<bool()>& done) {
  RETURN_IF_ERROR(parts_.pipe.Await(done, net::Deadline::Never()));
  return NothingRejected();
}

absl::Status LeaseWork::NothingRejected() const {
  if (parts_.pipe.rejected().ok()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a parameter server refuses what this worker pushes: ",
                                          std::string(parts_.pipe.rejected().message())));
}

absl::Status LeaseWork::AwaitWelcome() {
  return Await([this] { return begun_; });
}

absl::Status LeaseWork::Poll() {
  RETURN_IF_ERROR(parts_.pipe.Poll());
  return NothingRejected();
}

absl::Status LeaseWork::PollUntil(net::Deadline deadline) {
  const absl::Status status = parts_.pipe.Await([] { return false; }, deadline);
  return absl::IsDeadlineExceeded(status) ? NothingRejected() : status;
}

absl::Status LeaseWork::AwaitAll(absl::Duration timeout) {
  const absl::Status status =
      parts_.pipe.Await([this] { return flights_.empty(); }, net::Deadline::After(timeout));
  return status.ok() || absl::IsDeadlineExceeded(status) ? NothingRejected() : status;
}

absl::Status LeaseWork::Ready() {
  if (parts_.pipe.rests()) {
    begun_ = false;
    parts_.pipe.Wake();
  }
  return Await([this] { return begun_; });
}

void LeaseWork::Rest() {
  if (begun_ && !parts_.pipe.rests()) parts_.pipe.Rest();
}

absl::Status LeaseWork::Work(const LeaseRun& leases) {
  parts_.stopwatch.Enter(Activity::kExchange);
  RETURN_IF_ERROR(Await([this] { return flights_.size() < kMostOnTheirWay; }));
  if (leases.first == parameter_server::kFirstValues) return AssignFirstValues();
  RETURN_IF_ERROR(Ready());
  RETURN_IF_ERROR(FetchFor(leases));
  Flight flight;
  RETURN_IF_ERROR(Compute(leases, flight));
  return Seal(flight);
}

std::int64_t LeaseWork::StepOf(Lease lease) const {
  return parameter_server::StepOfLease(lease, portions_) + 1;
}

parameter_server::Clock LeaseWork::ClockOf(const LeaseRun& leases) const {
  return in_step_ ? StepOf(leases.first) - 1 : clock_;
}

// Of their step's batch: neighbouring shares are one range.
data::Range LeaseWork::PositionsOf(const LeaseRun& leases) const {
  const std::int64_t batch = parts_.batches.BatchSize(StepOf(leases.first));
  const auto share = [&](Lease lease) {
    return data::Share(batch, parameter_server::PortionOfLease(lease, portions_), portions_);
  };
  return {share(leases.first).begin, share(leases.end() - 1).end};
}

absl::Status LeaseWork::AssignFirstValues() {
  flights_[parameter_server::kFirstValues] = {.leases = parameter_server::kFirstValues};
  for (std::size_t slot = 0; slot < parts_.tables.parameter_slots; ++slot) {
    const RowRange& rows = parts_.tables.slots[slot].range;
    parameter_server::Update update;
    if (sparse_ != nullptr) {
      update.kind = UpdateKind::kRows;  // none: a row is zero until it comes to life
    } else {
      update.first = rows.begin;
      update.rows = rows.size();
      update.values = std::span<const float>(first_values_).subspan(rows.begin, rows.size());
    }
    Entry entry;
    entry.kind = EntryKind::kAssign;
    entry.lease = parameter_server::kFirstValues;
    entry.update = parameter_server::Encode(update);
    const Sequence sequence = parts_.pipe.Push(slot, std::move(entry));
    sent_[{slot, sequence}] = {parameter_server::kFirstValues, ++updates_};
    ++flights_[parameter_server::kFirstValues].open;
  }
  flights_[parameter_server::kFirstValues].sealed = true;
  return absl::OkStatus();
}

// Fetching.

absl::Status LeaseWork::FetchIfDue() {
  if (!downpour_.Fetches(units_)) return absl::OkStatus();
  parts_.stopwatch.Enter(Activity::kExchange);
  return reader_.Read(clock_, {}, codec_, [] { return true; });
}

absl::Status LeaseWork::FetchFor(const LeaseRun& leases) {
  const auto wanted = [&] { return events_.are_next(leases); };
  if (sparse_ != nullptr) {
    touched_ = sparse_->Rows(parts_.batches.SampleIds(StepOf(leases.first), PositionsOf(leases)));
    return reader_.Read(ClockOf(leases), touched_, codec_, wanted);
  }
  if (in_step_) return reader_.Read(ClockOf(leases), {}, codec_, wanted);
  return FetchIfDue();
}

absl::Status LeaseWork::Fetch(parameter_server::Clock clock, const std::function<bool()>& wanted,
                              bool validation_only) {
  parts_.stopwatch.Enter(Activity::kExchange);
  constexpr compression::CodecNumber kWhole = compression::kIdentity;
  if (sparse_ == nullptr) return reader_.Read(clock, {}, kWhole, wanted);
  if (!validation_only) return reader_.Read(clock, sparse_->AllRows(), kWhole, wanted);
  return reader_.Read(clock, sparse_->ValidationRows(), kWhole, wanted);
}

// Computing.

absl::Status LeaseWork::ComputeUnit(std::int64_t step, data::Range positions,
                                    const std::function<void(std::int64_t)>& push, Flight& flight) {
  parts_.stopwatch.Enter(Activity::kInput);
  const std::vector<std::int64_t> samples = parts_.batches.SampleIds(step, positions);
  const workload::Client client = {.loaded = [this] { parts_.stopwatch.Enter(Activity::kCompute); },
                                   .push = push};
  if (hogwild_ != nullptr) {
    client.loaded();
    Add(hogwild_->Work(samples, touched_, Rate()), flight.sums);
    const auto buckets = static_cast<std::int64_t>(parts_.workload.declaration().buckets.size());
    for (std::int64_t bucket = 0; bucket < buckets; ++bucket) push(bucket);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const workload::Sums sums, parts_.workload.Compute(samples, client));
  Add(sums, flight.sums);
  ++units_;
  return absl::OkStatus();
}

absl::Status LeaseWork::Compute(const LeaseRun& leases, Flight& flight) {
  const std::int64_t step = StepOf(leases.first);
  const data::Range all = PositionsOf(leases);
  const std::int64_t samples = all.size();
  flight.leases = leases;
  flight.samples = samples;
  flights_[leases.first] = flight;
  outgoing_ = {};
  outgoing_.leases = leases;
  outgoing_.clock = ClockOf(leases);
  outgoing_.weight = static_cast<double>(samples);
  if (samples == 0) return PushNothing();
  if (samples <= unit_) {
    outgoing_.gradient = parts_.workload.gradients();
    // What hogwild's threads have changed is pushed as it is.
    if (hogwild_ == nullptr) outgoing_.scale = 1 / static_cast<float>(samples);
    const std::vector<engine::Bucket>& buckets = parts_.workload.declaration().buckets;
    const auto push = [&](std::int64_t bucket) {
      GradientUpTo(buckets[static_cast<std::size_t>(bucket)].end);
    };
    RETURN_IF_ERROR(ComputeUnit(step, all, push, flight));
    if (parts_.spec.update().has_local_sgd()) GoOnLocally(samples);
  } else {
    RETURN_IF_ERROR(ComputeInUnits(step, all, flight));
    outgoing_.gradient = sum_;
    GradientUpTo(static_cast<std::int64_t>(sum_.size()));
  }
  if (!std::isfinite(flight.sums[0].sum)) outgoing_.diverged = true;
  return SendTheRest();
}

// The short batch at the end of an epoch may have fewer samples than portions.
absl::Status LeaseWork::PushNothing() {
  std::ranges::fill(parts_.workload.gradients(), 0.0F);
  outgoing_.gradient = parts_.workload.gradients();
  GradientUpTo(static_cast<std::int64_t>(outgoing_.gradient.size()));
  return SendTheRest();
}

absl::Status LeaseWork::ComputeInUnits(std::int64_t step, data::Range positions, Flight& flight) {
  sum_.assign(parts_.workload.gradients().size(), 0.0F);
  for (std::int64_t begin = positions.begin; begin < positions.end; begin += unit_) {
    if (begin > positions.begin) {
      if (absl::Status fetched = FetchIfDue(); !fetched.ok()) {
        flights_.erase(outgoing_.leases.first);  // nothing of it is sent
        return fetched;
      }
    }
    const data::Range unit{begin, std::min(positions.end, begin + unit_)};
    RETURN_IF_ERROR(ComputeUnit(
        step, unit, [](std::int64_t) {}, flight));
    kernels::Axpy(1 / static_cast<float>(unit.size()), parts_.workload.gradients(), sum_);
    GoOnLocally(unit.size());
  }
  return absl::OkStatus();
}

// Plain descent on the own copy, as far as the next fetch.
void LeaseWork::GoOnLocally(std::int64_t samples) {
  if (downpour_.Fetches(units_)) return;
  kernels::Axpy(-static_cast<float>(Rate() / static_cast<double>(samples)),
                parts_.workload.gradients(), parts_.workload.parameters());
}

// Of the update that comes next, as far as this worker knows.
double LeaseWork::Rate() const {
  return optimizer::LearningRate(parts_.spec.optimizer(), reader_.version(0) + 1);
}

// Pushing.

void LeaseWork::GradientUpTo(std::int64_t end) {
  const auto made = static_cast<std::uint64_t>(end);
  while (outgoing_.next < parts_.tables.parameter_slots &&
         (sparse_ != nullptr || parts_.tables.slots[outgoing_.next].range.end <= made)) {
    const std::size_t slot = outgoing_.next++;
    if (eager_ == nullptr) {
      PushSlot(slot);
      continue;
    }
    const RowRange& rows = parts_.tables.slots[slot].range;
    const double delta =
        std::sqrt(kernels::SumOfSquares(outgoing_.gradient.subspan(rows.begin, rows.size())));
    const double value = std::sqrt(kernels::SumOfSquares(
        std::span<const float>(parts_.workload.parameters()).subspan(rows.begin, rows.size())));
    unsent_.insert(slot);
    eager_->OnUpdate(slot, delta * outgoing_.scale, value,
                     static_cast<std::int64_t>(compressor_.codec().MaxBytes(rows.size())));
  }
  SendEagerly();
  // A link takes what its buffer holds at once, and the rest whenever it is asked; others wait for
  // their sums while this worker computes. How the view ends is heard later.
  if (parts_.pipe.sending() || parts_.pipe.sums_up()) (void)parts_.pipe.Poll();
}

// Null where the gradient is not finite.
parameter_server::UpdatePtr LeaseWork::Encoded(std::size_t slot, std::uint64_t update) {
  const RowRange& rows = parts_.tables.slots[slot].range;
  const PushEncoding encoding{codec_, compressor_, update};
  if (sparse_ != nullptr) {
    std::optional<Kkt> kkt;
    if (kkt_) kkt = Kkt{parts_.workload.parameters(), *kkt_};
    return EncodeRows(reader_.rows(slot), outgoing_.gradient, outgoing_.scale, encoding, kkt);
  }
  // A push of no samples weighs nothing in a mean, so what an earlier one owes must not go with it;
  // and there are no factors: what the workload has are an earlier lease's.
  if (outgoing_.weight == 0) {
    parameter_server::Update zeros;
    zeros.first = rows.begin;
    zeros.rows = rows.size();
    zeros.values = outgoing_.gradient.subspan(rows.begin, rows.size());
    return parameter_server::Encode(zeros, codec_);
  }
  if (!factored_) return EncodeRange(rows, outgoing_.gradient, outgoing_.scale, encoding);
  return EncodeFactored(rows, outgoing_.gradient, outgoing_.scale, encoding, parts_.workload);
}

void LeaseWork::PushSlot(std::size_t slot) {
  Entry entry;
  const std::uint64_t update = ++updates_;
  if (!outgoing_.diverged) entry.update = Encoded(slot, update);
  if (entry.update == nullptr) {
    outgoing_.diverged = true;
    return;
  }
  entry.lease = outgoing_.leases.first;
  entry.leases = outgoing_.leases.count;
  entry.clock = outgoing_.clock;
  entry.read = reader_.version(slot);
  entry.weight = outgoing_.weight;
  const Sequence sequence = parts_.pipe.Push(slot, std::move(entry));
  sent_[{slot, sequence}] = {outgoing_.leases.first, update};
  ++flights_[outgoing_.leases.first].open;
}

void LeaseWork::SendEagerly() {
  if (eager_ == nullptr) return;
  for (const std::uint64_t slot : eager_->Take(parts_.clock.Now())) {
    unsent_.erase(slot);
    PushSlot(slot);
  }
}

// The clock ends when nothing is left. Where the view has ended the budget is no matter: what is
// pushed now is sent in the next one.
absl::Status LeaseWork::SendTheRest() {
  parts_.stopwatch.Enter(Activity::kExchange);
  while (!unsent_.empty()) {
    const absl::Time now = parts_.clock.Now();
    const absl::Duration wait = std::max(absl::ZeroDuration(), eager_->Next(now) - now);
    const absl::Status status = parts_.pipe.Await([] { return false; }, net::Deadline::After(wait));
    SendEagerly();
    if (absl::IsDeadlineExceeded(status)) continue;
    for (const std::uint64_t slot : std::exchange(unsent_, {})) PushSlot(slot);
    eager_ = EagerOf(parts_.spec);
  }
  if (!outgoing_.diverged) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("batch ", StepOf(outgoing_.leases.first),
                   ": the loss or a gradient is not a finite number: training has diverged; lower "
                   "spec.optimizer's learningRate or normalize the data"));
}

absl::Status LeaseWork::Seal(const Flight& flight) {
  // An earlier lease that was refused meanwhile may have moved it further.
  clock_ = std::max(clock_, outgoing_.clock + 1);
  const Lease lease = outgoing_.leases.first;
  Flight& mine = flights_[lease];
  mine.sums = flight.sums;
  mine.sealed = true;
  FinishIfAllIn(lease);
  return absl::OkStatus();
}

}  // namespace starling::worker

// SPDX-License-Identifier: Apache-2.0
#include "trainer/client/parameter_server_exchange.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <variant>

#include "absl/strings/str_cat.h"
#include "api/spec/consistency.h"
#include "common/status/check.h"
#include "common/status/macros.h"
#include "trainer/client/compressor_options.h"
#include "trainer/kernels/span_math.h"
#include "trainer/parameter_server/shard_placement.h"
#include "trainer/parameter_server/update.h"

namespace starling::client {
namespace {

using consistency::LeaseRun;
using parameter_server::Entry;
using parameter_server::Update;

// Steps that may be without their acknowledgements before another is begun.
constexpr std::size_t kMostOnTheirWay = 4;

// Where everybody waits for everybody, waiting for a part of a sum costs nothing; else whoever
// waits for its own push is kept from its next step.
ParameterServerClient::Patience PatienceOf(const v1alpha1::TrainingJobSpec& spec) {
  if (spec::AllWaitForAll(spec)) return {absl::Milliseconds(500), absl::Seconds(1)};
  return {absl::Milliseconds(5), absl::Milliseconds(250)};
}

// Without eagerStaleSynchronous what is ready goes at once.
consistency::EagerSender::Options SenderOf(const v1alpha1::TrainingJobSpec& spec) {
  const consistency::Options options = parameter_server::ConsistencyOf(spec);
  const auto* eager = std::get_if<consistency::EagerStaleSynchronous>(&options);
  consistency::EagerSender::Options sender;
  sender.bytes_per_second =
      eager ? eager->bytes_per_second : std::numeric_limits<double>::infinity();
  sender.priority = eager ? eager->priority : consistency::Priority::kFifo;
  sender.seed = static_cast<std::uint64_t>(spec.seed());
  return sender;
}

double Norm(std::span<const float> values) { return std::sqrt(kernels::SumOfSquares(values)); }

std::unique_ptr<const compression::Codec> CodecOf(const v1alpha1::TrainingJobSpec& spec) {
  absl::StatusOr<std::unique_ptr<compression::Codec>> codec =
      compression::MakeCodec(spec.compression().codec());
  STARLING_CHECK(codec.ok(), "the tables were made with a codec that there is");
  return *std::move(codec);
}

// `group`: how many workers' pushes become one on the way; 0: none do.
exchange::Path PathOf(const membership::View& view, const transport::Mesh& mesh,
                      std::size_t group) {
  std::vector<int> servers(view.servers().size());
  std::iota(servers.begin(), servers.end(), 0);  // they stand before all workers
  return {.exchange = "parameterServer",
          .transport = exchange::TransportTo(mesh, servers),
          .algorithm = group > 1 ? absl::StrCat("PushPull, summed up by ", group, " workers first")
                                 : "PushPull",
          .reason = absl::StrCat("the parameters lie on ", servers.size(), " servers")};
}

}  // namespace

ParameterServerExchange::ParameterServerExchange(const Parts& parts, Events events)
    : parts_(parts),
      events_(std::move(events)),
      topology_(parameter_server::TopologyOf(parts.spec)),
      portions_(parameter_server::PortionsOf(parts.spec)),
      sparse_(parts.workload.sparse()),
      first_values_(parts.workload.parameters().begin(), parts.workload.parameters().end()),
      pipe_(parts.self, parts.tables.shards.size(), PatienceOf(parts.spec),
            parameter_server::NamesRows(parts.spec, sparse_ != nullptr)),
      reader_(pipe_, parts.tables, parts.clock, parts.workload.parameters(), sparse_ != nullptr),
      codec_(CodecOf(parts.spec)),
      compressor_(*codec_, first_values_.size(),
                  CompressorOptionsOf(parts.spec, parts.workload.declaration())),
      encode_(NewShardEncoder(parts.spec, parts.workload, parts.tables, reader_, compressor_)),
      clock_of_step_(spec::WorksInStep(parts.spec) ? std::function([this] {
        return static_cast<parameter_server::Clock>(step_.number) - 1;
      })
                                                   : [this] { return clock_; }),
      send_(SenderOf(parts.spec)),
      magnitudes_(SenderOf(parts.spec).priority == consistency::Priority::kRelativeMagnitude
                      ? std::function([this](std::size_t shard) {
                          return std::pair(
                              Norm(WholeShard(shard, gradients_).values),
                              Norm(WholeShard(shard, parts_.workload.parameters()).values));
                        })
                      : [](std::size_t) { return std::pair(0.0, 1.0); }) {
  for (std::size_t shard = 0; shard < parts.tables.parameter_shards; ++shard) {
    // Rows of a sparse table lie in any shard.
    ready_at_.push_back(sparse_ != nullptr ? first_values_.size()
                                           : parts.tables.shards[shard].range.end);
  }
  pipe_.SetHandlers(
      {.started_over = [this] { StartOver(); },
       .ready =
           [this](parameter_server::Clock start) {
             clock_ = start;
             begun_ = true;
           },
       .acknowledged = [this](const parameter_server::Acknowledged& event) { On(event); }});
}

// Views.

absl::Status ParameterServerExchange::Enter(const membership::View& view, transport::Mesh* mesh) {
  STARLING_CHECK(mesh != nullptr, "a view with servers has at least two members");
  parameter_server::ClientView mine = parameter_server::ClientViewOf(view, parts_.self);
  mine.group = parameter_server::GroupOf(view, topology_, parts_.self);
  for (const auto& shard : parts_.tables.shards) {
    mine.reductions.push_back(parameter_server::ReductionOf(shard));
  }
  path_ = PathOf(view, *mesh, mine.group.size());
  if (recorder_ != nullptr) transport_ = recorder_->Keep(path_.transport);
  pipe_.Enter(mine, parameter_server::RanksOf(view), *mesh);
  return pipe_.Await([this] { return begun_; }, net::Deadline::Never());
}

// Rule S7: nothing that was sent counts, and what is not sent is void.
void ParameterServerExchange::StartOver() {
  begun_ = false;
  flights_.clear();
  sent_.clear();
  compressor_.Clear();
  events_.started_over();
}

absl::Status ParameterServerExchange::Ready() {
  RETURN_IF_ERROR(
      pipe_.Await([this] { return flights_.size() < kMostOnTheirWay; }, net::Deadline::Never()));
  if (pipe_.rests()) {
    begun_ = false;
    pipe_.Wake();
  }
  return pipe_.Await([this] { return begun_; }, net::Deadline::Never());
}

void ParameterServerExchange::Rest() {
  if (begun_ && !pipe_.rests()) pipe_.Rest();
}

absl::Status ParameterServerExchange::PollUntil(net::Deadline deadline) {
  const absl::Status status = pipe_.Await([] { return false; }, deadline);
  return absl::IsDeadlineExceeded(status) ? absl::OkStatus() : status;
}

absl::Status ParameterServerExchange::AwaitAll(absl::Duration timeout) {
  const absl::Status status =
      pipe_.Await([this] { return flights_.empty(); }, net::Deadline::After(timeout));
  return absl::IsDeadlineExceeded(status) ? absl::OkStatus() : status;
}

// Reading.

absl::StatusOr<std::int64_t> ParameterServerExchange::Prepare() {
  std::vector<std::uint64_t> rows;
  if (sparse_ != nullptr) rows = sparse_->Rows(step_.samples);
  RETURN_IF_ERROR(reader_.Read(clock_of_step_(), rows, parts_.tables.codec_of_reads,
                               [this] { return events_.are_next(step_.leases); }));
  step_clock_ = clock_of_step_();
  return reader_.version(0) + 1;
}

absl::Status ParameterServerExchange::Fetch(parameter_server::Clock clock,
                                            const std::function<bool()>& wanted,
                                            bool validation_only) {
  constexpr compression::CodecNumber kWhole = compression::kIdentity;
  if (sparse_ == nullptr) return reader_.Read(clock, {}, kWhole, wanted);
  if (!validation_only) return reader_.Read(clock, sparse_->AllRows(), kWhole, wanted);
  return reader_.Read(clock, sparse_->ValidationRows(), kWhole, wanted);
}

// Pushing.

// All parameters of a shard; of a sparse table none, for a row is zero until it comes to life.
Update ParameterServerExchange::WholeShard(std::size_t shard, std::span<const float> values) const {
  Update update;
  if (sparse_ != nullptr) {
    update.kind = parameter_server::UpdateKind::kRows;
    return update;
  }
  const parameter_server::RowRange& rows = parts_.tables.shards[shard].range;
  update.first = rows.begin;
  update.rows = rows.size();
  update.values = values.subspan(rows.begin, rows.size());
  return update;
}

absl::Status ParameterServerExchange::AssignFirstValues() {
  RETURN_IF_ERROR(
      pipe_.Await([this] { return flights_.size() < kMostOnTheirWay; }, net::Deadline::Never()));
  flights_[++flight_] = {.what = {.leases = parameter_server::kFirstValues}};
  for (std::size_t shard = 0; shard < parts_.tables.parameter_shards; ++shard) {
    Entry entry;
    entry.kind = parameter_server::EntryKind::kAssign;
    entry.lease = parameter_server::kFirstValues;
    entry.update = parameter_server::Encode(WholeShard(shard, first_values_));
    Send(shard, std::move(entry));
  }
  flights_[flight_].sealed = true;
  return absl::OkStatus();
}

absl::Status ParameterServerExchange::Begin(const exchange::Step& step) {
  ASSIGN_OR_RETURN(gradients_, step.gradients.As<float>());
  RETURN_IF_ERROR(Ready());
  step_ = step;
  step_clock_ = clock_of_step_();
  next_ = 0;
  finite_ = true;
  cancelled_ = absl::OkStatus();
  flights_[++flight_] = {.what = {.leases = step.leases, .samples = step.samples.size()}};
  return absl::OkStatus();
}

void ParameterServerExchange::Add(int /*group*/, int bucket) {
  const auto& buckets = parts_.workload.declaration().buckets;
  const auto made = static_cast<std::uint64_t>(buckets[static_cast<std::size_t>(bucket)].end);
  for (; next_ < ready_at_.size() && ready_at_[next_] <= made; ++next_) {
    const auto [change, value] = magnitudes_(next_);
    const std::size_t bytes =
        compressor_.codec().MaxBytes(WholeShard(next_, gradients_).values.size());
    send_.OnUpdate(next_, change, value, static_cast<std::int64_t>(bytes));
  }
  Push(send_.Take(parts_.clock.Now()));
  // A link takes what its buffer holds at once, and the rest whenever it is asked; others wait for
  // their sums while this worker computes. How the view ends is heard later.
  if (pipe_.sending() || pipe_.sums_up()) (void)pipe_.Poll();
}

// Null where the gradient is not finite.
parameter_server::UpdatePtr ParameterServerExchange::Encoded(std::size_t shard) {
  // A push of no samples weighs nothing in a mean, so what an earlier one owes must not go with it;
  // and there are no factors.
  if (step_.samples.empty()) {
    return parameter_server::Encode(WholeShard(shard, gradients_), parts_.tables.codec);
  }
  compressor_.OnStep(reader_.version(shard) + 1);
  return encode_(shard, gradients_, step_.scale, flight_ * ready_at_.size() + shard);
}

void ParameterServerExchange::Push(const std::vector<std::uint64_t>& shards) {
  for (const std::uint64_t shard : shards) {
    Entry entry;
    const absl::Time begin = timeline::IsOn(recorder_) ? recorder_->Now() : absl::InfiniteFuture();
    if (finite_) entry.update = Encoded(shard);
    finite_ = entry.update != nullptr;
    if (!finite_) return;
    const std::uint64_t bytes = entry.update->text().size();
    const std::uint64_t dense = entry.update->values * sizeof(float);
    volume_.sent += bytes;
    volume_.dense += dense;
    entry.lease = step_.leases.first;
    entry.leases = step_.leases.count;
    entry.clock = step_clock_;
    entry.read = reader_.version(shard);
    entry.weight = static_cast<double>(step_.samples.size());
    Send(shard, std::move(entry));
    if (begin == absl::InfiniteFuture()) continue;
    recorder_->Add({.track = v1alpha1::TraceEvent::EXCHANGE,
                    .name = "push",
                    .begin = begin,
                    .end = recorder_->Now(),
                    .step = static_cast<std::int64_t>(step_.number),
                    .bucket = static_cast<std::int64_t>(shard),
                    .bytes = bytes,
                    .dense_bytes = dense,
                    .algorithm = "Push",
                    .transport = transport_});
  }
}

void ParameterServerExchange::Send(std::size_t shard, Entry entry) {
  sent_[{shard, pipe_.Push(shard, std::move(entry))}] = flight_;
  ++flights_[flight_].open;
}

// Where the view has ended the budget is no matter: what is pushed now is sent in the next one.
void ParameterServerExchange::SendTheRest() {
  for (absl::Time now = parts_.clock.Now(), next = send_.Next(now); next < absl::InfiniteFuture();
       now = parts_.clock.Now(), next = send_.Next(now)) {
    const bool in_view = PollUntil(net::Deadline::After(next - now)).ok();
    Push(in_view ? send_.Take(parts_.clock.Now()) : send_.TakeAll());
  }
}

absl::StatusOr<exchange::Outcome> ParameterServerExchange::Finish(
    std::span<const double> statistics, int /*columns*/) {
  if (cancelled_.ok()) SendTheRest();
  finite_ = finite_ && std::ranges::all_of(statistics, [](double x) { return std::isfinite(x); });
  if (!cancelled_.ok() || !finite_) {
    (void)send_.TakeAll();
    flights_.erase(flight_);
    RETURN_IF_ERROR(cancelled_);
    return exchange::Outcome{.statistics = {statistics.begin(), statistics.end()}, .finite = false};
  }
  // An earlier step that was refused meanwhile may have moved it further.
  clock_ = std::max(clock_, step_clock_ + 1);
  Flight& flight = flights_[flight_];
  flight.what.statistics.assign(statistics.begin(), statistics.end());
  flight.sealed = true;
  FinishIfAllIn(flight_);
  return exchange::Outcome{.statistics = {statistics.begin(), statistics.end()}};
}

// Acknowledgements.

void ParameterServerExchange::On(const parameter_server::Acknowledged& event) {
  const auto sent = sent_.find({event.shard, event.sequence});
  if (sent == sent_.end()) return;
  const FlightNumber number = sent->second;
  sent_.erase(sent);
  const std::uint64_t update = number * ready_at_.size() + event.shard;
  if (event.outcome == parameter_server::Outcome::kTaken) {
    compressor_.Commit(update);
  } else {
    compressor_.Discard(update);
  }
  const auto flight = flights_.find(number);
  if (flight == flights_.end()) return;  // it was cancelled
  --flight->second.open;
  if (event.outcome == parameter_server::Outcome::kRefused) {
    flight->second.refused = true;
    clock_ = std::max(clock_, event.start);  // of the running step
  }
  FinishIfAllIn(number);
}

void ParameterServerExchange::FinishIfAllIn(FlightNumber number) {
  const Flight flight = flights_[number];
  if (!flight.sealed || flight.open > 0) return;
  flights_.erase(number);
  if (flight.refused) {
    ++refused_;
    events_.refused(flight.what.leases);
  } else {
    events_.done(flight.what);
  }
}

}  // namespace starling::client

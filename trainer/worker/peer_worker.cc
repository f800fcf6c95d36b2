// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/peer_worker.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/log/log.h"
#include "common/status/macros.h"
#include "trainer/compression/codec.h"
#include "trainer/exchange/exchange.h"
#include "trainer/optimizer/optimizer.h"
#include "trainer/worker/result.h"
#include "trainer/worker/step_loop.h"

namespace starling::worker {
namespace {

absl::StatusOr<std::unique_ptr<exchange::Exchange>> MakeExchange(
    const v1alpha1::TrainingJobSpec& spec, std::span<const engine::Bucket> buckets) {
  std::vector<size_t> sizes;
  sizes.reserve(buckets.size());
  for (const engine::Bucket& bucket : buckets) {
    sizes.push_back(static_cast<size_t>(bucket.end - bucket.begin));
  }
  if (spec.exchange().has_none()) return exchange::NewNoExchange(sizes);
  if (spec.reproducible()) return exchange::NewReproducibleExchange(sizes);
  exchange::AllReduceOptions options;
  switch (spec.exchange().all_reduce().algorithm()) {
    case v1alpha1::ALL_REDUCE_ALGORITHM_RING:
      options.algorithm = collectives::Algorithm::kRing;
      break;
    case v1alpha1::ALL_REDUCE_ALGORITHM_NAIVE:
      options.algorithm = collectives::Algorithm::kNaive;
      break;
    default:
      break;
  }
  const v1alpha1::Compression& compression = spec.compression();
  ASSIGN_OR_RETURN(const auto codec, compression::CodecNumberOf(compression.codec()));
  ASSIGN_OR_RETURN(options.codec, compression::FindCodec(codec));
  options.error_feedback = compression.error_feedback();
  return exchange::NewAllReduceExchange(sizes, options);
}

// What must be equal at all workers: the data always, the arithmetic where bits must agree.
std::string IdentityOf(const WorkerConfig& config, const workload::Declaration& declared) {
  const std::string data = absl::StrCat("data=", declared.data_digest.substr(0, 16));
  return config.spec.reproducible() ? absl::StrCat(declared.numeric_identity, " ", data) : data;
}

v1alpha1::CheckpointStatus ToStatus(const checkpoint::WriteResult& result,
                                    const clock::Clock& clock) {
  v1alpha1::CheckpointStatus status;
  status.set_name(checkpoint::NameOf(result.id));
  status.set_uri(result.uri);
  status.set_step(result.id.step);
  status.mutable_time()->set_seconds(absl::ToUnixSeconds(clock.WallNow()));
  return status;
}

}  // namespace

struct PeerWorker::State {
  State(WorkerConfig config_in, WorkerParts parts_in, std::unique_ptr<optimizer::Optimizer> rule_in,
        std::unique_ptr<exchange::Exchange> exchange_in);

  void OnCheckpoint(const checkpoint::WriteResult& result);
  MemberShell::AtOnce AtOnce();
  StepLoop::Parts LoopParts();

  const WorkerConfig config;
  const WorkerParts parts;
  const std::unique_ptr<optimizer::Optimizer> rule;
  const std::unique_ptr<exchange::Exchange> exchange;
  Stopwatch stopwatch;
  TrainingBoard board;
  WorkerMetrics metrics;
  StepFiles step_files;
  ViewLinks links;
  MemberShell shell;
  TrainingState training;
  StepComputer computer;
  std::atomic<StepLoop*> loop_to_retry{nullptr};
  Checkpointing checkpointing;
  StepLoop loop;
};

PeerWorker::State::State(WorkerConfig config_in, WorkerParts parts_in,
                         std::unique_ptr<optimizer::Optimizer> rule_in,
                         std::unique_ptr<exchange::Exchange> exchange_in)
    : config(std::move(config_in)),
      parts(std::move(parts_in)),
      rule(std::move(rule_in)),
      exchange(std::move(exchange_in)),
      stopwatch(parts.clock),
      board(parts.clock, stopwatch),
      metrics(parts.registry),
      step_files(config.progress_file, config.step_log),
      links(parts.transport),
      shell({.id = config.self,
             .numeric_identity = IdentityOf(config, parts.workload.declaration()),
             .last_exit = config.last_exit,
             .rules = {}},
            AtOnce()),
      training(parts.workload, *rule, config.spec.validation().keep_best()),
      computer({.workload = parts.workload,
                .batches = data::Batches(parts.workload.declaration().samples,
                                         config.spec.dataset().global_batch_size(),
                                         static_cast<uint64_t>(config.spec.seed())),
                .reproducible = config.spec.reproducible(),
                .exchange = *exchange,
                .stopwatch = stopwatch}),
      checkpointing(checkpoint::CheckpointStore(parts.storage, checkpoint::kCheckpoints),
                    std::max<int64_t>(1, config.spec.checkpoint().keep()),
                    {{kDataDigest, parts.workload.declaration().data_digest}},
                    [this](const checkpoint::WriteResult& result) { OnCheckpoint(result); }),
      loop(LoopParts()) {
  const std::span<float> residual = exchange->residual();
  if (residual.empty()) return;
  training.parts().Add("exchange/residual", {static_cast<int64_t>(residual.size())}, residual,
                       checkpoint::Scope::kOwn);
}

MemberShell::AtOnce PeerWorker::State::AtOnce() {
  return {.fence = [this](membership::ViewNumber view) { links.Fence(view); },
          .abort_view = [this](membership::ViewNumber view) { links.Abort(view); },
          .report = parts.poke,
          .stop = [this] { links.Stop(); }};
}

StepLoop::Parts PeerWorker::State::LoopParts() {
  return {.spec = config.spec,
          .self = config.self,
          .job_dir = config.job_dir,
          .model_metadata = parts.workload.declaration().model_metadata,
          .shell = shell,
          .links = links,
          .state = training,
          .computer = computer,
          .exchange = *exchange,
          .workload = parts.workload,
          .checkpointing = checkpointing,
          .storage = parts.storage,
          .board = board,
          .stopwatch = stopwatch,
          .step_files = step_files,
          .metrics = metrics,
          .clock = parts.clock,
          .poke = parts.poke,
          .on_view = parts.on_view};
}

void PeerWorker::State::OnCheckpoint(const checkpoint::WriteResult& result) {
  if (!result.status.ok()) {
    log::Error("checkpoint not written", {{"checkpoint", checkpoint::NameOf(result.id)},
                                          {"why", std::string(result.status.message())}});
    if (StepLoop* step_loop = loop_to_retry) step_loop->RetrySave();
    return;
  }
  log::Info("checkpoint written", {{"checkpoint", checkpoint::NameOf(result.id)},
                                   {"seconds", absl::ToDoubleSeconds(result.elapsed)}});
  metrics.checkpoints.Increment();
  board.SetCheckpoint(ToStatus(result, parts.clock));
  shell.Deliver([id = FromCheckpointId(result.id)](membership::Member& machine) {
    return machine.OnCheckpointCommitted(id);
  });
}

absl::StatusOr<std::unique_ptr<Worker>> PeerWorker::Create(WorkerConfig config, WorkerParts parts) {
  RETURN_IF_ERROR(CheckTarget(config.spec.stop(), parts.workload.declaration().metrics));
  ASSIGN_OR_RETURN(std::unique_ptr<optimizer::Optimizer> rule,
                   optimizer::MakeOptimizer(config.spec.optimizer()));
  ASSIGN_OR_RETURN(std::unique_ptr<exchange::Exchange> exchange,
                   MakeExchange(config.spec, parts.workload.declaration().buckets));
  auto state = std::make_unique<State>(std::move(config), std::move(parts), std::move(rule),
                                       std::move(exchange));
  state->loop_to_retry = &state->loop;
  return std::unique_ptr<Worker>(new PeerWorker(std::move(state)));
}

PeerWorker::PeerWorker(std::unique_ptr<State> state) : state_(std::move(state)) {}
PeerWorker::~PeerWorker() { state_->loop_to_retry = nullptr; }

absl::Status PeerWorker::Run() { return state_->loop.Run(); }

void PeerWorker::OnDirective(const membership::Directive& directive) {
  state_->shell.Deliver(
      [&](membership::Member& machine) { return machine.OnDirective(directive); });
}

membership::Report PeerWorker::MakeReport() const {
  RefreshMetrics();
  membership::Report report =
      state_->shell.Ask([](const membership::Member& machine) { return machine.MakeReport(); });
  // What the machine has heard of stands on the board already, so that is read last: whoever says
  // that it has stopped names the checkpoint of it.
  report.training = state_->board.Read();
  return report;
}

void PeerWorker::Terminate() {
  state_->shell.Deliver([](membership::Member& machine) { return machine.OnTerminate(); });
}

void PeerWorker::GraceOver() {
  state_->shell.Deliver([](membership::Member& machine) { return machine.OnGraceOver(); });
}

void PeerWorker::WaitForExit(absl::Duration timeout) {
  const net::Deadline deadline = net::Deadline::After(timeout);
  while (state_->shell.WaitForAction(deadline.Remaining())) {
    if (std::holds_alternative<membership::Exit>(*state_->shell.Next(false))) return;
  }
}

void PeerWorker::RefreshMetrics() const {
  const transport::Traffic total = state_->parts.transport.ledger().Total();
  state_->metrics.bytes_sent.Set(static_cast<double>(total.payload_sent + total.header_sent));
  state_->metrics.bytes_received.Set(
      static_cast<double>(total.payload_received + total.header_received));
}

}  // namespace starling::worker

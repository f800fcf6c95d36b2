// SPDX-License-Identifier: Apache-2.0
#include "trainer/worker/client_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/bytes/bytes.h"
#include "common/status/macros.h"
#include "trainer/worker/lease_loop.h"
#include "trainer/worker/result.h"

namespace starling::worker {
namespace {

std::string DataName(const workload::Declaration& declared) {
  return absl::StrCat("data=", declared.data_digest.substr(0, 16));
}

// Workers with another one would push gradients of another model or of other samples.
parameter_server::Layout LayoutOf(workload::Workload& workload) {
  const workload::Declaration& declared = workload.declaration();
  std::string names;
  for (const engine::Tensor& tensor : declared.tensors) {
    absl::StrAppend(&names, tensor.name, "[", absl::StrJoin(tensor.shape, ","), "];");
  }
  bytes::Sha256 digest;
  digest.Update(bytes::View(names));
  return {.parameters = static_cast<std::int64_t>(workload.parameters().size()),
          .samples = declared.samples,
          .fingerprint = absl::StrCat("model=", bytes::ToHex(digest.Finish()).substr(0, 16), " ",
                                      DataName(declared)),
          .sparse = workload.sparse() != nullptr};
}

}  // namespace

struct ClientWorker::State {
  State(WorkerConfig config_in, WorkerParts parts_in, const parameter_server::Layout& layout,
        parameter_server::JobTables tables_in);

  LeaseLoop::Parts LoopParts();

  const WorkerConfig config;
  const WorkerParts parts;
  const parameter_server::JobTables tables;
  Stopwatch stopwatch;
  TrainingBoard board;
  WorkerMetrics metrics;
  StepFiles step_files;
  ViewLinks links;
  LeaseDesk desk;
  LeaseLoop loop;
};

ClientWorker::State::State(WorkerConfig config_in, WorkerParts parts_in,
                           const parameter_server::Layout& layout,
                           parameter_server::JobTables tables_in)
    : config(std::move(config_in)),
      parts(std::move(parts_in)),
      tables(std::move(tables_in)),
      stopwatch(parts.clock),
      board(parts.clock, stopwatch),
      metrics(parts.registry),
      step_files(config.progress_file, config.step_log),
      links(parts.transport),
      desk({.id = config.self,
            .numeric_identity = DataName(parts.workload.declaration()),
            .last_exit = config.last_exit,
            .layout = layout},
           {.fence = [this](membership::ViewNumber view) { links.Fence(view); },
            .stop = [this] { links.Stop(); },
            .report = parts.poke}),
      loop(LoopParts()) {}

LeaseLoop::Parts ClientWorker::State::LoopParts() {
  return {.spec = config.spec,
          .self = config.self,
          .job_dir = config.job_dir,
          .model_metadata = parts.workload.declaration().model_metadata,
          .desk = desk,
          .links = links,
          .workload = parts.workload,
          .tables = tables,
          .storage = parts.storage,
          .board = board,
          .stopwatch = stopwatch,
          .step_files = step_files,
          .metrics = metrics,
          .clock = parts.clock,
          .poke = parts.poke,
          .on_view = parts.on_view};
}

absl::StatusOr<std::unique_ptr<Worker>> ClientWorker::Create(WorkerConfig config,
                                                             WorkerParts parts) {
  RETURN_IF_ERROR(CheckTarget(config.spec.stop(), parts.workload.declaration().metrics));
  const parameter_server::Layout layout = LayoutOf(parts.workload);
  ASSIGN_OR_RETURN(parameter_server::JobTables tables,
                   parameter_server::TablesOf(config.spec, layout));
  return std::unique_ptr<Worker>(new ClientWorker(
      std::make_unique<State>(std::move(config), std::move(parts), layout, std::move(tables))));
}

ClientWorker::ClientWorker(std::unique_ptr<State> state) : state_(std::move(state)) {}
ClientWorker::~ClientWorker() = default;

absl::Status ClientWorker::Run() { return state_->loop.Run(); }

void ClientWorker::OnDirective(const membership::Directive& directive) {
  state_->desk.OnDirective(directive);
}

membership::Report ClientWorker::MakeReport() const {
  const transport::Traffic total = state_->parts.transport.ledger().Total();
  state_->metrics.bytes_sent.Set(static_cast<double>(total.payload_sent + total.header_sent));
  state_->metrics.bytes_received.Set(
      static_cast<double>(total.payload_received + total.header_received));
  membership::Report report = state_->desk.MakeReport();
  report.training = state_->board.Read();  // the board is written first, so it is read last
  return report;
}

void ClientWorker::Terminate() { state_->desk.Terminate(); }
void ClientWorker::GraceOver() { state_->desk.GraceOver(); }

void ClientWorker::WaitForExit(absl::Duration timeout) {
  const net::Deadline deadline = net::Deadline::After(timeout);
  while (!deadline.Expired()) {
    const Orders orders = state_->desk.Read();
    if (!orders.exit.empty()) return;
    (void)state_->desk.WaitForChange(orders.stamp, deadline.Remaining());
  }
}

}  // namespace starling::worker

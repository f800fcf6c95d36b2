// SPDX-License-Identifier: Apache-2.0
#include "api/telemetry/metric_table.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/status/check.h"

namespace starling::telemetry {
namespace {

using enum Kind;
using enum Source;

// client-go's: ten to a power, from 10 ns to 1000 s.
constexpr double kQueueBounds[] = {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3,
                                   1e-2, 1e-1, 1,    10,   100,  1000};
// controller-runtime's.
constexpr double kReconcileBounds[] = {0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3,  0.35,
                                       0.4,   0.45, 0.5,   0.6,  0.7, 0.8,  0.9, 1.0,  1.25, 1.5,
                                       1.75,  2.0,  2.5,   3.0,  3.5, 4.0,  4.5, 5,    6,    7,
                                       8,     9,    10,    15,   20,  25,   30,  40,   50,   60};
constexpr double kUpdateBounds[] = {0, 1, 2, 4, 8, 16, 32, 64, 128};
constexpr double kSaveBounds[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1,
                                  2.5,   5,     10,   30,   60,  300, 600};
constexpr double kStartBounds[] = {0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400};
constexpr double kDayBounds[] = {10,    60,    300,    900,    3600,   14400,
                                 43200, 86400, 259200, 604800, 2592000};

constexpr MetricRow kRows[] = {
    {"starling_build_info", kGauge, kEveryProcess, "version", "Always 1: which version runs."},
    {"process_cpu_seconds_total", kCounter, kEveryProcess, "", "User and system time."},
    {"process_start_time_seconds", kGauge, kEveryProcess, "", "Start, in Unix time."},
    {"process_virtual_memory_bytes", kGauge, kEveryProcess, "", "Virtual memory."},
    {"process_resident_memory_bytes", kGauge, kEveryProcess, "", "Resident memory."},
    {"process_open_fds", kGauge, kEveryProcess, "", "Open file descriptors."},
    {"process_max_fds", kGauge, kEveryProcess, "", "Most open file descriptors allowed."},

    {"starling_worker_steps_total", kCounter, kWorker, "",
     "Updates that this worker took part in and that count."},
    {"starling_worker_samples_total", kCounter, kWorker, "",
     "Samples that this worker computed for updates that count: summed over the workers, the job's "
     "samples."},
    {"starling_worker_step", kGauge, kWorker, "", "Updates in the present state."},
    {"starling_worker_loss", kGauge, kWorker, "", "Mean training loss of the last batch."},
    {"starling_worker_step_seconds", kHistogram, kWorker, "",
     "From one applied update to the next."},
    {"starling_worker_exchange_seconds", kHistogram, kWorker, "",
     "Of a step, from the end of this worker's computing to the end of the exchange, waits for "
     "other workers included."},
    {"starling_worker_fetch_seconds", kHistogram, kWorker, "",
     "From asking the servers for parameters to having them, waits for other workers included."},
    {"starling_worker_view_epoch", kGauge, kWorker, "", "Epoch of the present view."},
    {"starling_worker_view_members", kGauge, kWorker, "", "Workers in the present view."},
    {"starling_worker_recoveries_total", kCounter, kWorker, "",
     "Views entered because a member was lost."},
    {"starling_worker_recovery_seconds", kHistogram, kWorker, "",
     "From the end of a view to the first update of the next."},
    {"starling_worker_sent_bytes_total", kCounter, kWorker, "",
     "Bytes sent on the data plane, headers included."},
    {"starling_worker_received_bytes_total", kCounter, kWorker, "",
     "Bytes received on the data plane, headers included."},
    {"starling_worker_refused_pushes_total", kCounter, kWorker, "",
     "Pushes that came too late for their step (backup workers)."},
    {"starling_worker_checkpoints_total", kCounter, kWorker, "result",
     "Checkpoints of this worker that were written or failed. Parameter servers write snapshots."},
    {"starling_worker_checkpoint_seconds", kHistogram, kWorker, "",
     "From the copy of the state to the checkpoint on its storage.", kSaveBounds},

    {"starling_worker_activity_seconds_total", kCounter, kWorker, "activity",
     "Seconds since this process began, by what it did. Each second has one activity: starting, "
     "joining, input, compute, exchange, waiting (for workers that came later to the exchange), "
     "optimizer, checkpoint, recovery, repeated or idle."},

    {"starling_server_pushes_total", kCounter, kServer, "",
     "Pushes received as the head of a shard, retries included."},
    {"starling_server_pulls_total", kCounter, kServer, "",
     "Reads received as the tail of a shard, retries included."},
    {"starling_server_updates_total", kCounter, kServer, "", "Log entries applied, all shards."},
    {"starling_server_apply_seconds", kHistogram, kServer, "",
     "Of a push or forwarded update: applying it and making the answers."},
    {"starling_server_staleness_updates", kHistogram, kServer, "",
     "Updates between a push's read and its being applied.", kUpdateBounds},
    {"starling_server_shards", kGauge, kServer, "", "Shards held in the present view."},
    {"starling_server_answering_shards", kGauge, kServer, "",
     "Shards that this server answers for."},
    {"starling_server_held_bytes", kGauge, kServer, "",
     "Parameters and what the rule keeps beside them."},
    {"starling_server_load_bytes_per_second", kGauge, kServer, "",
     "Updates taken and values read, all shards, smoothed over seconds."},
    {"starling_server_ledger_leases", kGauge, kServer, "",
     "Leases in the shortest ledger of the shards answered for."},
    {"starling_server_view_epoch", kGauge, kServer, "", "Epoch of the present view."},
    {"starling_server_sent_bytes_total", kCounter, kServer, "",
     "Bytes sent on the data plane, headers included."},
    {"starling_server_received_bytes_total", kCounter, kServer, "",
     "Bytes received on the data plane, headers included."},
    {"starling_server_snapshots_total", kCounter, kServer, "result",
     "Snapshots of shards that were written or failed."},
    {"starling_server_last_snapshot_timestamp_seconds", kGauge, kServer, "",
     "When this process wrote its newest snapshot, in Unix time; 0: it has written none."},

    {"starling_server_activity_seconds_total", kCounter, kServer, "activity",
     "Seconds since this process began, by what its carrying thread did; as the worker's."},

    {"starling_coordinator_incarnation", kGauge, kCoordinator, "",
     "Number of this coordinator process; absent before it leads, as all that follows of a job."},
    {"starling_coordinator_standby_armed", kGauge, kCoordinator, "",
     "1: this coordinator process waits, and leads if the one that leads falls silent; 0: it "
     "leads, or could not take over now."},
    {"starling_job_step", kGauge, kCoordinator, "", "The newest settled step."},
    {"starling_job_members", kGauge, kCoordinator, "role",
     "Members that report and are in the view."},
    {"starling_job_members_wanted", kGauge, kCoordinator, "role",
     "Members that the controller wants."},
    {"starling_job_activity_seconds_total", kCounter, kCoordinator, "activity,role",
     "Seconds of all processes of the job, of those too that have ended, by what they did, as far "
     "as this coordinator has heard of them; queueing: members were wanted, and no process stood "
     "for them. status.goodput goes on over coordinators."},
    {"starling_job_view_epoch", kGauge, kCoordinator, "", "Epoch of the newest membership view."},
    {"starling_job_views_total", kCounter, kCoordinator, "cause",
     "Views that this process has published: planned ones, and those that followed a loss."},
    {"starling_job_incidents_total", kCounter, kCoordinator, "reason",
     "Losses that were dealt with."},
    {"starling_job_repeated_steps_total", kCounter, kCoordinator, "",
     "Steps made again because of the incidents."},
    {"starling_job_recovery_seconds", kHistogram, kCoordinator, "",
     "Of an incident, from its being noticed to training going on."},
    {"starling_job_loss", kGauge, kCoordinator, "", "Mean training loss at the newest step."},
    {"starling_job_metric", kGauge, kCoordinator, "name",
     "The newest value of each metric of training and validation."},
    {"starling_job_stragglers", kGauge, kCoordinator, "",
     "Workers that the others wait for at each step, for 10 s at least; status.progress.stragglers "
     "names them and their nodes."},
    {"starling_job_checkpoint_interval_seconds", kGauge, kCoordinator, "",
     "How often a checkpoint is due."},
    {"starling_job_last_checkpoint_timestamp_seconds", kGauge, kCoordinator, "",
     "When the newest whole checkpoint was written, in Unix time; 0: there is none."},

    {"starling_controller_jobs", kGauge, kController, "job_namespace,state", "Jobs by state."},
    {"starling_controller_jobs_degraded", kGauge, kController, "job_namespace,reason",
     "Jobs whose condition Degraded is true, by its reason."},
    {"starling_controller_jobs_finished_total", kCounter, kController,
     "job_namespace,result,reason",
     "Jobs that ended while this process led: succeeded or failed, and why."},
    {"starling_controller_job_start_seconds", kHistogram, kController, "",
     "From a job's creation to its being Running for the first time.", kStartBounds},
    {"starling_controller_job_duration_seconds", kHistogram, kController, "",
     "From a job's creation to its end.", kDayBounds},
    {"starling_controller_coordinator_links", kGauge, kController, "state",
     "Streams to coordinators: those that report, and those that are silent."},
    {"workqueue_depth", kGauge, kController, "controller,name", "Keys that wait to be reconciled."},
    {"workqueue_adds_total", kCounter, kController, "controller,name", "Keys added to the queue."},
    {"workqueue_retries_total", kCounter, kController, "controller,name",
     "Keys added again after a failure."},
    {"workqueue_queue_duration_seconds", kHistogram, kController, "controller,name",
     "How long keys wait before a worker has them.", kQueueBounds},
    {"workqueue_work_duration_seconds", kHistogram, kController, "controller,name",
     "How long workers have keys.", kQueueBounds},
    {"workqueue_unfinished_work_seconds", kGauge, kController, "controller,name",
     "Seconds of work under way, summed over workers: a growing value means a stuck one."},
    {"workqueue_longest_running_processor_seconds", kGauge, kController, "controller,name",
     "For how long the slowest worker has had its key."},
    {"controller_runtime_reconcile_total", kCounter, kController, "controller,result",
     "Reconciles by result."},
    {"controller_runtime_reconcile_errors_total", kCounter, kController, "controller",
     "Reconciles that failed."},
    {"controller_runtime_reconcile_time_seconds", kHistogram, kController, "controller",
     "Length of reconciles.", kReconcileBounds},
    {"controller_runtime_active_workers", kGauge, kController, "controller",
     "Workers that reconcile at this moment."},
    {"controller_runtime_max_concurrent_reconciles", kGauge, kController, "controller",
     "Workers that may reconcile at the same time."},

    {"starling_http_requests_total", kCounter, kRest, "code,method,route",
     "Requests to the REST service."},
    {"starling_http_request_duration_seconds", kHistogram, kRest, "route",
     "From a whole request to its answer, or to the beginning of a stream."},
    {"starling_http_connections", kGauge, kRest, "", "Open connections."},
    {"starling_http_streams", kGauge, kRest, "", "Open streams."},
    {"starling_http_streams_limit", kGauge, kRest, "", "Streams that may be open at once."},
    {"starling_http_coalesced_events_total", kCounter, kRest, "",
     "States that a stream did not tell, for a newer one came."},

    {"starling_history_bytes", kGauge, kRest, "", "What the history keeps, as text."},
    {"starling_history_limit_bytes", kGauge, kRest, "", "Beyond it the oldest jobs are forgotten."},
    {"starling_history_lag_seconds", kGauge, kRest, "",
     "For how long the oldest news waits to be written."},
    {"starling_history_dropped_total", kCounter, kRest, "",
     "Jobs whose news waited for too long and were let go."},

    {"leader_election_master_status", kGauge, kClusterController, "name", "1: this process leads."},
    {"rest_client_requests_total", kCounter, kClusterController, "code,host,method",
     "Requests to the API server."},
    {"rest_client_request_duration_seconds", kHistogram, kClusterController, "host,verb",
     "Until the API server answered; of a watch, until it began."},
};

const MetricRow& RowOf(std::string_view name, Kind kind, const metrics::Labels& labels) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows),
                                [name](const MetricRow& one) { return one.name == name; });
  STARLING_CHECK(row != std::end(kRows), "a metric stands in api/telemetry/metric_table.cc");
  STARLING_CHECK(row->kind == kind, "a metric is of the kind that the table says");
  const absl::string_view listed(row->labels.data(), row->labels.size());
  const std::set<std::string> wanted = absl::StrSplit(listed, ',', absl::SkipEmpty());
  std::set<std::string> given;
  for (const auto& [label, value] : labels) given.insert(label);
  STARLING_CHECK(given == wanted, "a metric has the labels that the table says");
  return *row;
}

std::string RowsOf(Source source) {
  std::string rows =
      absl::StrCat("\n| Metric | Type | Labels | Meaning |\n", "| --- | --- | --- | --- |\n");
  for (const MetricRow& row : kRows) {
    if (row.source != source) continue;
    const std::string labels = absl::StrReplaceAll(std::string(row.labels), {{",", "`, `"}});
    absl::StrAppend(&rows, "| `", std::string(row.name), "` | ", std::string(NameOf(row.kind)),
                    " | ", labels.empty() ? "" : absl::StrCat("`", labels, "`"), " | ",
                    std::string(row.help), " |\n");
  }
  return rows;
}

constexpr char kHead[] = R"(# Metrics

What every process shows on `/metrics`, in Prometheus' text format: coordinators, workers and
parameter servers on port 7073 of their pod, the controller where `controller.json` says
(one machine) or at `--metrics-bind-address` (a cluster). Generated from
`api/telemetry/metric_table.cc`; a test holds the table against the output of running jobs.

Pods' series get `job_namespace`, `job_name`, `role` and `pod` when they are scraped
(`charts/starling`, value `monitoring.enabled`); the labels below are the process's own. Series end
with their pod. Of several controllers only the one that leads counts jobs.
)";

}  // namespace

std::span<const MetricRow> Metrics() { return kRows; }

std::string_view NameOf(Source source) {
  switch (source) {
    case kEveryProcess:
      return "every process";
    case kWorker:
      return "worker";
    case kServer:
      return "parameter server";
    case kCoordinator:
      return "coordinator";
    case kController:
      return "controller";
    case kRest:
      return "REST service";
    case kClusterController:
      return "controller of a cluster";
  }
  return "";
}

std::string_view NameOf(Kind kind) {
  return kind == kCounter ? "counter" : kind == kGauge ? "gauge" : "histogram";
}

metrics::Counter AddCounter(metrics::Registry& registry, std::string_view name,
                            const metrics::Labels& labels) {
  return registry.AddCounter(name, RowOf(name, kCounter, labels).help, labels);
}

metrics::Gauge AddGauge(metrics::Registry& registry, std::string_view name,
                        const metrics::Labels& labels) {
  return registry.AddGauge(name, RowOf(name, kGauge, labels).help, labels);
}

metrics::Histogram AddHistogram(metrics::Registry& registry, std::string_view name,
                                const metrics::Labels& labels) {
  const MetricRow& row = RowOf(name, kHistogram, labels);
  if (row.bounds.empty()) return registry.AddHistogram(name, row.help, labels);
  return registry.AddHistogram(name, row.help, labels, {row.bounds.begin(), row.bounds.end()});
}

std::string MetricsPage() {
  std::string page = kHead;
  for (const Source source :
       {kWorker, kServer, kCoordinator, kController, kRest, kClusterController, kEveryProcess}) {
    std::string title(NameOf(source));
    title[0] = absl::ascii_toupper(static_cast<unsigned char>(title[0]));
    absl::StrAppend(&page, "\n## ", title, "\n", RowsOf(source));
  }
  return page;
}

}  // namespace starling::telemetry

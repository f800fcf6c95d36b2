#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the dashboards and the rules of this folder from the tables below.

usage: dashboards/generate.py [--check]

Dashboards are imported as they are: data source, namespace and job are variables. To add a panel: a
line in its dashboard's list. To add an alert: a line in ALERTS, its page docs/runbooks/NAME.md, and
its cases in tests/dashboards/alert_cases.py. --check writes nothing and fails where a file is not current.
"""
import json
import os
import sys
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
LICENCE = "# SPDX-License-Identifier: Apache-2.0\n"

# A query and the name of its lines; {{label}} stands for a label's value.
Query = namedtuple("Query", "expression legend")
# kind: timeseries, stacked or stat. unit: Grafana's name of it. limit: a value beyond which (for what is
# better the more there is of it: below which) it is worth a look. least: where the axis begins at least,
# None: where the data do. colours: of lines by name, where the name has the same meaning everywhere.
Panel = namedtuple("Panel", "title description unit queries kind width limit least colours",
                   defaults=("timeseries", 8, None, 0, {}))
Limit = namedtuple("Limit", "value better")
STATES = {"Running": "green", "Succeeded": "blue", "Failed": "red", "Pending": "yellow",
          "Suspended": "purple", "Restarting": "orange"}
ACTIVITIES = {"compute": "green", "exchange": "blue", "input": "super-light-green",
              "optimizer": "dark-green", "waiting": "orange", "checkpoint": "purple",
              "starting": "light-yellow", "joining": "yellow", "recovery": "red",
              "repeated": "light-red", "idle": "#6e7582"}

I = "[$__rate_interval]"
J = 'job_namespace=~"$ns",job_name=~"$job"'
NS = 'job_namespace=~"$ns"'
BY_JOB = "by (job_namespace, job_name)"
GOODPUT = "job_name:starling_goodput:ratio_rate5m"
BUSY = "pod:starling_worker_busy_seconds_per_step:ratio_rate5m"
# What a process of Starling exports, among those of others that use the same client's names.
OURS = "and on (instance) starling_build_info"


def quantile(share, histogram, matchers="", by="", interval=I):
    labels = ", ".join(["le", *([by] if by else [])])
    return (f"histogram_quantile({share}, sum by ({labels}) "
            f"(rate({histogram}_bucket{{{matchers}}}{interval})))")


def newest(gauge, matchers, by):
    """One line, whichever of its processes told it last: a restarted one has another address."""
    return f"max by ({by}) ({gauge}{{{matchers}}})"


def within_hour(counter):
    """How much a sum over series has grown. increase() does not see the first of a new series."""
    return f"({counter}) - ({counter} offset 1h) or 0 * {counter})))"


def rate(counter, matchers="", by=None):
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({counter}{{{matchers}}}{I}))"


FLEET = [
    Panel("Jobs by state", "TrainingJobs, as the leading controller counts them.", "short",
          [Query(f"sum by (state) (starling_controller_jobs{{{NS}}})", "{{state}}")], "stacked", 12,
          colours=STATES),
    Panel("Jobs ended", "Within the hour before; by how they ended.", "short",
          [Query("clamp_min(" + within_hour("sum by (result) (starling_controller_jobs_finished_total"
                                            f"{{{NS}}}") + ", 0)", "{{result}}")], width=12,
          colours=STATES),
    Panel("Goodput by job", "Share of the workers' seconds that went into input, compute, exchange "
          "and the optimizer. What else they did stands on the job's own page.", "percentunit",
          [Query(f"{GOODPUT}{{{NS}}}", "{{job_namespace}}/{{job_name}}")], width=12,
          limit=Limit(0.7, "above")),
    Panel("Samples by namespace", "Samples a second that went into updates that count.", "short",
          [Query(rate("starling_worker_samples_total", NS, "job_namespace"), "{{job_namespace}}")],
          width=12),
    Panel("Time to start", "From a job's creation to its being Running, of those of the hour before.",
          "s",
          [Query(quantile(share, "starling_controller_job_start_seconds", interval="[1h]"), name)
           for share, name in ((0.5, "median"), (0.9, "90 %"))]),
    Panel("Processor time", "Cores that jobs' processes keep busy.", "short",
          [Query(f'sum by (job_namespace) (rate(process_cpu_seconds_total{{{NS},job_name!=""}}{I}))',
                 "{{job_namespace}}")]),
    Panel("Memory", "Resident memory of jobs' processes.", "bytes",
          [Query(f'sum by (job_namespace) (process_resident_memory_bytes{{{NS},job_name!=""}})',
                 "{{job_namespace}}")]),
    Panel("Incidents", "Losses that jobs have dealt with in the hour before; a job that stands out "
          "has a cause of its own.", "short",
          [Query(f"sum {BY_JOB} (increase(starling_job_incidents_total{{{NS}}}[1h])) > 0",
                 "{{job_namespace}}/{{job_name}}")], width=12),
    Panel("Degraded jobs", "By the reason of their condition Degraded: docs/reference/reasons.md has "
          "the remedy of each.", "short",
          [Query("sum by (job_namespace, reason) "
                 f"(starling_controller_jobs_degraded{{{NS}}})", "{{job_namespace}}: {{reason}}")],
          width=12),
]

JOB = [
    Panel("Step", "The newest settled step.", "short",
          [Query(f"max {BY_JOB} (starling_job_step{{{J}}})", "{{job_name}}")], "stat", 4),
    Panel("Goodput", "Share of the workers' seconds that went into input, compute, exchange and the "
          "optimizer, over five minutes.", "percentunit",
          [Query(f"{GOODPUT}{{{J}}}", "{{job_name}}")], "stat", 4, Limit(0.7, "above")),
    Panel("Checkpoint's age", "Since the newest whole checkpoint was written: what a loss of all "
          "workers would cost.", "s",
          [Query(f"time() - (max {BY_JOB} "
                 f"(starling_job_last_checkpoint_timestamp_seconds{{{J}}}) > 0)",
                 "{{job_name}}")], "stat", 4),
    Panel("Loss", "Mean training loss at the newest step.", "none",
          [Query(newest("starling_job_loss", J, "job_namespace, job_name"), "{{job_name}}")], width=6,
          least=None),
    Panel("Metrics", "Newest values of training and validation, such as accuracy.", "none",
          [Query(newest("starling_job_metric", f'{J},name!~"exchange/.*"',
                        "job_namespace, job_name, name"), "{{job_name}} {{name}}")], width=6, least=None),
    Panel("Where the workers' time goes", "Workers, by what they do: a worker is in one activity at "
          "a time. Waiting is for workers that came later to the exchange: see Trainer for who "
          "they are.", "short",
          [Query(rate("starling_worker_activity_seconds_total", J, "activity"), "{{activity}}")],
          "stacked", 12, colours=ACTIVITIES),
    Panel("Where the parameter servers' time goes", "Servers, by what their carrying thread does: "
          "idle is waiting for messages.", "short",
          [Query(rate("starling_server_activity_seconds_total", J, "activity"), "{{activity}}")],
          "stacked", 12, colours=ACTIVITIES),
    Panel("Samples", "A second, all workers.", "short",
          [Query(rate("starling_worker_samples_total", J), "samples/s")]),
    Panel("Members", "Those that report and are in the view, and those that are wanted.", "short",
          [Query(f"sum by (job_name, role) (starling_job_members{{{J}}})", "{{job_name}} {{role}}"),
           Query(f"sum by (job_name, role) (starling_job_members_wanted{{{J}}})",
                 "{{job_name}} {{role}}, wanted")]),
    Panel("Step time", "From one applied update to the next.", "s",
          [Query(quantile(share, "starling_worker_step_seconds", J, "pod"), "{{pod}} " + name)
           for share, name in ((0.5, "median"), (0.99, "99 %"))]),
    Panel("Recovery", "From an incident's being noticed to training going on, the slowest of a "
          "hundred in the hour before.", "s",
          [Query(quantile(0.99, "starling_job_recovery_seconds", J, interval="[1h]"), "99 %")]),
    Panel("Steps made again", "Because of incidents, in the hour before.", "short",
          [Query(f"sum {BY_JOB} (increase(starling_job_repeated_steps_total{{{J}}}[1h]))",
                 "{{job_name}}")]),
    Panel("Incidents", "In the hour before, by reason: docs/reference/reasons.md has the remedy of "
          "each.", "short",
          [Query("sum by (job_name, reason) "
                 f"(increase(starling_job_incidents_total{{{J}}}[1h])) > 0", "{{reason}}")]),
    Panel("Data plane", "Bytes a second that workers send.", "Bps",
          [Query(rate("starling_worker_sent_bytes_total", J, "pod"), "{{pod}}")]),
    Panel("Memory", "Resident memory of the job's processes.", "bytes",
          [Query(newest("process_resident_memory_bytes", J, "pod"), "{{pod}}")]),
    Panel("GPUs", "Share of the time that graphics engines work, from NVIDIA's dcgm-exporter, if it "
          "is there.", "percentunit",
          [Query(f'max by (exported_pod, pod, gpu) (DCGM_FI_PROF_GR_ENGINE_ACTIVE'
                 f'{{exported_pod=~"($job)-worker-.*"}} or DCGM_FI_PROF_GR_ENGINE_ACTIVE'
                 f'{{pod=~"($job)-worker-.*"}})', "{{exported_pod}}{{pod}} {{gpu}}")]),
]

TRAINER = [
    Panel("Stragglers", "Each worker's own work for a step over that of the quarter of the job's "
          "workers that is fastest: above 1.5 all others wait for it.", "none",
          [Query(f"{BUSY}{{{J}}} / on (job_namespace, job_name) group_left () "
                 f"quantile {BY_JOB} (0.25, {BUSY}{{{J}}})", "{{pod}}")], width=12,
          limit=Limit(1.5, "below")),
    Panel("Waiting", "Seconds a second for which workers waited for others in the exchange: whoever "
          "waits least is the one that is waited for.", "percentunit",
          [Query(f'sum by (pod) (rate(starling_worker_activity_seconds_total{{{J},'
                 f'activity="waiting"}}{I}))', "{{pod}}")], width=12),
    Panel("Exchange", "Of a step, from the end of computing to the end of the exchange, the slowest "
          "of a hundred.", "s",
          [Query(quantile(0.99, "starling_worker_exchange_seconds", J, "pod"), "{{pod}}")]),
    Panel("Fetch", "From asking the servers for parameters to having them, the slowest of a "
          "hundred.", "s",
          [Query(quantile(0.99, "starling_worker_fetch_seconds", J, "pod"), "{{pod}}")]),
    Panel("Checkpoints and snapshots", "Of workers and of parameter servers, in the hour before.",
          "short",
          [Query(f"sum by (result) (increase(starling_worker_checkpoints_total{{{J}}}[1h]))",
                 "checkpoints {{result}}"),
           Query(f"sum by (result) (increase(starling_server_snapshots_total{{{J}}}[1h]))",
                 "snapshots {{result}}")]),
    Panel("Writing a checkpoint", "From the copy of the state to the checkpoint on its storage, in the "
          "hour before.", "s",
          [Query(quantile(share, "starling_worker_checkpoint_seconds", J, interval="[1h]"), name)
           for share, name in ((0.5, "median"), (0.99, "99 %"))]),
    Panel("Views", "New ones in the hour before, by what they came from.", "short",
          [Query(f"sum by (job_name, cause) (increase(starling_job_views_total{{{J}}}[1h]))",
                 "{{job_name}} {{cause}}")]),
    Panel("View", "Epoch of the view that each member is in: whoever stays behind is cut off.",
          "short",
          [Query(newest("starling_worker_view_epoch", J, "pod"), "{{pod}}"),
           Query(newest("starling_server_view_epoch", J, "pod"), "{{pod}}"),
           Query(newest("starling_job_view_epoch", J, "job_name"), "coordinator of {{job_name}}")]),
    Panel("Refused pushes", "A minute: pushes that came too late for their step (backup workers).",
          "short",
          [Query(f"60 * {rate('starling_worker_refused_pushes_total', J, 'pod')}", "{{pod}}")]),
    Panel("Pushes and reads", "A second, by server, retries included.", "short",
          [Query(rate("starling_server_pushes_total", J, "pod"), "{{pod}} pushes"),
           Query(rate("starling_server_pulls_total", J, "pod"), "{{pod}} reads")]),
    Panel("Updates applied", "A second, by server.", "short",
          [Query(rate("starling_server_updates_total", J, "pod"), "{{pod}}")]),
    Panel("Applying an update", "The slowest of a hundred.", "s",
          [Query(quantile(0.99, "starling_server_apply_seconds", J, "pod"), "{{pod}}")]),
    Panel("Staleness", "Updates between a push's read and its being applied.", "short",
          [Query(quantile(share, "starling_server_staleness_updates", J), name)
           for share, name in ((0.5, "median"), (0.99, "99 %"))]),
    Panel("Balance of load", "The busiest server's load over the mean: 1 is even; a hot shard moves "
          "when the coordinator sees it.", "none",
          [Query(f"max {BY_JOB} (starling_server_load_bytes_per_second{{{J}}}) / "
                 f"avg {BY_JOB} (starling_server_load_bytes_per_second{{{J}}})", "{{job_name}}")]),
    Panel("Shards", "Parts of the model that each server answers for, and those that it holds.",
          "short",
          [Query(newest("starling_server_answering_shards", J, "pod"), "{{pod}} answers"),
           Query(newest("starling_server_shards", J, "pod"), "{{pod}} holds")]),
    Panel("Held bytes", "Parameters and what the rule keeps beside them.", "bytes",
          [Query(newest("starling_server_held_bytes", J, "pod"), "{{pod}}")]),
    Panel("Snapshot's age", "Since each server wrote its newest snapshot.", "s",
          [Query(f"time() - (max by (pod) (starling_server_last_snapshot_timestamp_seconds{{{J}}}) > 0)",
                 "{{pod}}")]),
]

CONTROLLER = [
    Panel("Leader", "Which process leads; all 0: nobody does.", "short",
          [Query('leader_election_master_status{name="starling-controller"}', "{{pod}}")], width=6),
    Panel("Reconciles", "A second, by result.", "ops",
          [Query(rate("controller_runtime_reconcile_total", 'controller="trainingjob"', "result"),
                 "{{result}}")], width=6),
    Panel("Reconcile time", "Of one look at a job.", "s",
          [Query(quantile(share, "controller_runtime_reconcile_time_seconds",
                          'controller="trainingjob"'), name)
           for share, name in ((0.5, "median"), (0.99, "99 %"))], width=6),
    Panel("Workers", "That reconcile at this moment, and how many may.", "short",
          [Query('sum by (pod) (controller_runtime_active_workers{controller="trainingjob"})',
                 "{{pod}}"),
           Query('max(controller_runtime_max_concurrent_reconciles{controller="trainingjob"})',
                 "may")], width=6),
    Panel("Queue", "Jobs that wait to be looked at.", "short",
          [Query('sum by (pod) (workqueue_depth{name="trainingjob"})', "{{pod}}")]),
    Panel("Wait in the queue", "The slowest of a hundred.", "s",
          [Query(quantile(0.99, "workqueue_queue_duration_seconds", 'name="trainingjob"'),
                 "99 %")]),
    Panel("Retries", "Jobs that come back after failures, a second.", "ops",
          [Query(rate("workqueue_retries_total", 'name="trainingjob"', "pod"), "{{pod}}")]),
    Panel("Requests to the API server", "A second, by code.", "ops",
          [Query(f"sum by (code) (rate(rest_client_requests_total{I}) {OURS})", "{{code}}")],
          width=12),
    Panel("The API server's answers", "The slowest of a hundred, by verb.", "s",
          [Query("histogram_quantile(0.99, sum by (le, verb) "
                 f"(rate(rest_client_request_duration_seconds_bucket{I}) {OURS}))", "{{verb}}")],
          width=12),
    Panel("Streams to coordinators", "Those that report, and those that are silent: their jobs train "
          "on, but nothing is heard of them.", "short",
          [Query("sum by (state) (starling_controller_coordinator_links)", "{{state}}")], width=6),
    Panel("Processor time", "Cores.", "short",
          [Query(f'sum by (pod) (rate(process_cpu_seconds_total{{job_name=""}}{I}) {OURS})', "{{pod}}")],
          width=6),
    Panel("Memory", "Resident memory.", "bytes",
          [Query(f'max by (pod) (process_resident_memory_bytes{{job_name=""}} {OURS})', "{{pod}}")],
          width=6),
    Panel("Open files", "Share of what is allowed, the fullest of each kind of process.",
          "percentunit",
          [Query(f"max by (role) (process_open_fds / process_max_fds {OURS})", "{{role}}")], width=6,
          limit=Limit(0.8, "below")),
    Panel("Requests to REST", "A second, by code.", "ops",
          [Query(rate("starling_http_requests_total", by="code"), "{{code}}")]),
    Panel("REST's answers", "Until an answer, or the beginning of a stream: the slowest of a hundred, "
          "by route.", "s",
          [Query(quantile(0.99, "starling_http_request_duration_seconds", by="route"),
                 "{{route}}")]),
    Panel("Connections and streams", "Open ones of all REST processes.", "short",
          [Query("sum (starling_http_connections)", "connections"),
           Query("sum (starling_http_streams)", "streams")]),
    Panel("History", "What it keeps, as text; beyond a bound the oldest jobs are forgotten.", "bytes",
          [Query("max (starling_history_bytes)", "kept")]),
    Panel("History's lag", "For how long the oldest news waits to be written.", "s",
          [Query("starling_history_lag_seconds", "{{pod}}")]),
    Panel("Versions", "Processes of each version.", "short",
          [Query("count by (version) (starling_build_info)", "{{version}}")]),
]

# file, title, description, panels, whether it is about one job
DASHBOARDS = [
    ("fleet", "Starling: fleet", "All jobs: how many, how well they use what they have.", FLEET),
    ("job", "Starling: job", "One job: how far, how fast, where its time goes.", JOB),
    ("trainer", "Starling: trainer", "One job's workers and parameter servers.", TRAINER),
    ("controller", "Starling: controller", "The operator itself.", CONTROLLER),
]

RECORDED = [
    (GOODPUT,
     f"sum {BY_JOB} (rate(starling_worker_activity_seconds_total"
     '{activity=~"input|compute|exchange|optimizer"}[5m])) / '
     f"sum {BY_JOB} (rate(starling_worker_activity_seconds_total[5m]))"),
    (BUSY,
     "sum by (job_namespace, job_name, pod) (rate(starling_worker_activity_seconds_total"
     '{activity=~"input|compute|optimizer"}[5m])) / '
     "sum by (job_namespace, job_name, pod) (rate(starling_worker_steps_total[5m]) > 0)"),
]

FAILED_JOBS = 'sum by (job_namespace) (starling_controller_jobs_finished_total{result="Failed"}'
ENDED_JOBS = "sum by (job_namespace) (starling_controller_jobs_finished_total"


JOB_LABELS = "{{ $labels.job_namespace }}/{{ $labels.job_name }}"
Alert = namedtuple("Alert", "name expression wait severity summary")
ALERTS = [
    Alert("NoLeader", "(max(leader_election_master_status"
          '{name="starling-controller"}) or vector(0)) < 1', "2m", "critical",
          "no controller leads: jobs train on, but nothing starts, heals or ends"),
    Alert("ReconcileErrors",
          'sum(rate(controller_runtime_reconcile_errors_total{controller="trainingjob"}[5m])) / '
          'sum(rate(controller_runtime_reconcile_total{controller="trainingjob"}[5m])) > 0.1',
          "10m", "warning", "{{ $value | humanizePercentage }} of reconciles fail"),
    Alert("QueueSlow", quantile(0.99, "workqueue_queue_duration_seconds", 'name="trainingjob"',
                                interval="[5m]") + " > 30", "10m", "warning",
          "jobs wait {{ $value | humanizeDuration }} before the controller looks at them"),
    Alert("ApiServerRefuses",
          'sum(rate(rest_client_requests_total{code=~"429|5..|<error>"}[5m]) '
          f"{OURS}) / sum(rate(rest_client_requests_total[5m]) {OURS}) > 0.05", "10m", "warning",
          "{{ $value | humanizePercentage }} of the controller's requests are refused or fail"),
    Alert("JobStalled",
          "changes(starling_job_step[15m]) == 0 and on (job_namespace, job_name) "
          'starling_job_members{role="worker"} > 0', "5m", "warning",
          f"{JOB_LABELS} has workers, and has not made a step for a quarter of an hour"),
    Alert("JobFlapping", f"sum {BY_JOB} (increase(starling_job_incidents_total[30m])) > 5", "0m",
          "warning", f"{JOB_LABELS} has lost members {{{{ $value | humanize }}}} times in half an "
          "hour"),
    Alert("JobUnderstaffed",
          "sum by (job_namespace, job_name, role) (starling_job_members) < "
          "sum by (job_namespace, job_name, role) (starling_job_members_wanted)", "20m", "info",
          f"{JOB_LABELS} trains with fewer members of role {{{{ $labels.role }}}} than it wants"),
    Alert("GoodputLow", f"{GOODPUT} < 0.7", "20m", "info",
          f"only {{{{ $value | humanizePercentage }}}} of the workers' time of {JOB_LABELS} goes "
          "into training"),
    Alert("Straggler",
          f"{BUSY} > on (job_namespace, job_name) group_left () "
          f"1.5 * quantile {BY_JOB} (0.25, {BUSY})", "20m", "info",
          f"{{{{ $labels.pod }}}} works longer on each step than the others of {JOB_LABELS}, "
          "which wait for it"),
    # Where none was ever written, since the coordinator's start.
    Alert("CheckpointStale",
          "time() - (starling_job_last_checkpoint_timestamp_seconds > 0 "
          'or process_start_time_seconds{role="coordinator"}) > '
          "clamp_min(3 * (starling_job_checkpoint_interval_seconds > 0), 600)", "5m", "warning",
          f"{JOB_LABELS} has had no new checkpoint for {{{{ $value | humanizeDuration }}}}"),
    Alert("ServerSnapshotStale",
          "time() - (starling_server_last_snapshot_timestamp_seconds > 0) > "
          "on (job_namespace, job_name) group_left () "
          "clamp_min(3 * (starling_job_checkpoint_interval_seconds > 0), 600)", "5m", "warning",
          f"{{{{ $labels.pod }}}} of {JOB_LABELS} wrote its newest snapshot "
          "{{ $value | humanizeDuration }} ago"),
    Alert("CheckpointFailing",
          f'sum {BY_JOB} (increase(starling_worker_checkpoints_total{{result="failed"}}[15m])) > 0 '
          f'or sum {BY_JOB} (increase(starling_server_snapshots_total{{result="failed"}}[15m])) > 0',
          "0m", "warning", f"{JOB_LABELS} cannot write checkpoints"),
    Alert("JobsFail",
          f"{within_hour(FAILED_JOBS)} >= 3 and {within_hour(FAILED_JOBS)} > "
          f"0.5 * ({within_hour(ENDED_JOBS)})", "0m", "info",
          "most jobs of {{ $labels.job_namespace }} that ended within the hour have failed"),
    Alert("JobsUnscraped",
          'sum by (job_namespace) (starling_controller_jobs{state="Running"}) > 0 '
          "unless on (job_namespace) starling_job_step", "10m", "warning",
          "jobs run in {{ $labels.job_namespace }}, but nobody scrapes them"),
    Alert("FileDescriptorsLow", f"process_open_fds / process_max_fds > 0.8 {OURS}", "10m", "warning",
          "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its files open"),
    Alert("RestErrors",
          'sum(rate(starling_http_requests_total{code=~"5.."}[5m])) / '
          "sum(rate(starling_http_requests_total[5m])) > 0.01", "5m", "warning",
          "{{ $value | humanizePercentage }} of REST's answers tell of a failure of its own"),
    Alert("RestSlow", quantile(0.99, "starling_http_request_duration_seconds", by="route",
                               interval="[5m]") + " > 1", "5m", "warning",
          "REST takes {{ $value | humanizeDuration }} to answer {{ $labels.route }}"),
    Alert("StreamsNearLimit", "starling_http_streams / starling_http_streams_limit > 0.8", "10m",
          "warning", "{{ $labels.instance }} has {{ $value | humanizePercentage }} of its streams open"),
    Alert("HistoryFull", "starling_history_bytes / (starling_history_limit_bytes > 0) > 0.9", "10m",
          "warning", "the history is {{ $value | humanizePercentage }} full: the oldest jobs are "
          "forgotten soon"),
    Alert("HistoryBehind", "starling_history_lag_seconds > 60", "10m", "warning",
          "{{ $labels.instance }} has not written to the history for {{ $value | humanizeDuration }}"),
]


def thresholds(panel):
    """Green, and red beyond the panel's limit."""
    if panel.limit is None:
        return {"mode": "absolute", "steps": [{"color": "green", "value": None}]}
    names = ("green", "red") if panel.limit.better == "below" else ("red", "green")
    return {"mode": "absolute", "steps": [{"color": names[0], "value": None},
                                          {"color": names[1], "value": panel.limit.value}]}


def grafana_panel(number, panel, x, y):
    defaults = {"unit": panel.unit, "thresholds": thresholds(panel)}
    overrides = [{"matcher": {"id": "byName", "options": name}, "properties": [
        {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
                 for name, colour in panel.colours.items()]
    if panel.kind == "stat":
        options = {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name",
                   "colorMode": "value", "graphMode": "area"}
        defaults["color"] = {"mode": "thresholds"}
    else:
        options = {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                   "tooltip": {"mode": "multi", "sort": "desc"}}
        custom = {"fillOpacity": 10, "showPoints": "never"}
        if panel.kind == "stacked":
            custom = {"fillOpacity": 60, "lineWidth": 0, "showPoints": "never",
                      "stacking": {"group": "A", "mode": "normal"}}
        if panel.limit is not None:
            custom["thresholdsStyle"] = {"mode": "dashed"}
        if panel.least is not None:
            defaults["min"] = panel.least
        defaults.update({"color": {"mode": "palette-classic"}, "custom": custom})
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "id": number, "type": "stat" if panel.kind == "stat" else "timeseries",
        "title": panel.title, "description": panel.description, "datasource": source,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": 8},
        "fieldConfig": {"defaults": defaults, "overrides": overrides}, "options": options,
        "targets": [{"refId": chr(ord("A") + i), "datasource": source, "expr": query.expression,
                     "legendFormat": query.legend} for i, query in enumerate(panel.queries)]}


def variable(name, label, query):
    return {"name": name, "label": label, "type": "query", "query": query, "definition": query,
            "datasource": {"type": "prometheus", "uid": "${datasource}"}, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*",
            "current": {"selected": True, "text": "All", "value": "$__all"}}


def dashboard(name, title, description, panels):
    variables = [{"name": "datasource", "label": "Data source", "type": "datasource",
                  "query": "prometheus"}]
    if name != "controller":
        variables.append(variable("ns", "Namespace",
                                  "label_values(starling_job_step, job_namespace)"))
    if name in ("job", "trainer"):
        variables.append(variable("job", "Job", 'label_values(starling_job_step'
                                  '{job_namespace=~"$ns"}, job_name)'))
    placed, x, y = [], 0, 0
    for panel in panels:
        if x + panel.width > 24:
            x, y = 0, y + 8
        placed.append(grafana_panel(len(placed) + 1, panel, x, y))
        x += panel.width
    incidents = {"name": "Incidents", "enable": True, "iconColor": "red", "step": "15s",
                 "datasource": {"type": "prometheus", "uid": "${datasource}"},
                 "expr": f"increase(starling_job_incidents_total{{{J}}}[1m]) > 0",
                 "titleFormat": "{{reason}}", "textFormat": "{{job_name}}"}
    return {
        "uid": f"starling-{name}", "title": title, "description": description,
        "tags": ["starling"], "schemaVersion": 39, "version": 1, "editable": True,
        "graphTooltip": 1, "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser", "templating": {"list": variables},
        "annotations": {"list": [incidents] if name in ("job", "trainer") else []},
        "links": [{"type": "dashboards", "title": "Starling", "tags": ["starling"],
                   "asDropdown": True, "includeVars": True, "keepTime": True}],
        "panels": placed}


def rules():
    """By hand rather than by a YAML library, which would need one: strings are JSON's."""
    lines = [LICENCE.rstrip(), "# Made by dashboards/generate.py: recording rules and alerts of "
             "Starling.", "groups:", "- name: starling.rules", "  rules:"]
    for name, expression in RECORDED:
        lines += [f"  - record: {name}", f"    expr: {json.dumps(expression)}"]
    lines += ["- name: starling.alerts", "  rules:"]
    for alert in ALERTS:
        lines += [f"  - alert: Starling{alert.name}", f"    expr: {json.dumps(alert.expression)}",
                  f"    for: {alert.wait}", f"    labels: {{severity: {alert.severity}}}",
                  "    annotations:", f"      summary: {json.dumps(alert.summary)}",
                  f"      runbook: docs/runbooks/Starling{alert.name}.md"]
    return "\n".join(lines) + "\n"


def files():
    made = {f"{name}.json": json.dumps(dashboard(name, *rest), indent=1) + "\n"
            for name, *rest in DASHBOARDS}
    return {**made, "rules.yaml": rules()}


def main():
    stale = []
    for name, text in files().items():
        path = os.path.join(HERE, name)
        if sys.argv[1:] == ["--check"]:
            if not os.path.exists(path) or open(path, encoding="utf-8").read() != text:
                stale.append(name)
            continue
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    if stale:
        sys.exit(f"dashboards/: {', '.join(stale)} not current; run: dashboards/generate.py")
    print("dashboards: current" if sys.argv[1:] else "dashboards: written")


if __name__ == "__main__":
    main()

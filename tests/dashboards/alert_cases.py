# SPDX-License-Identifier: Apache-2.0
"""For each alert: series under which it fires, with its labels and its words, and a calm that differs
in nothing but the fault. Values are promtool's: "0x10" is eleven zeros, "0+5x10" rises by 5; one a
minute."""
from collections import namedtuple

# labels: None where it is silent.
Case = namedtuple("Case", "alert series at labels summary")

OF_JOB = 'job_namespace="ns",job_name="digits"'
JOB = {"job_namespace": "ns", "job_name": "digits"}
CONTROLLER = 'controller="trainingjob",instance="c"'
BUILD = ('starling_build_info{instance="c",version="1"}', "1x60")
LEADER = 'leader_election_master_status{name="starling-controller",instance="%s"}'


def requests(ok, refused):
    # Another client in the cluster is refused all the time: that is not ours.
    return [BUILD, ('rest_client_requests_total{instance="other",code="503"}', "0+100x60"),
            ('rest_client_requests_total{instance="c",code="200"}', f"0+{ok}x60"),
            ('rest_client_requests_total{instance="c",code="429"}', f"0+{refused}x60")]


def waits(short, long):
    of = 'workqueue_queue_duration_seconds_bucket{name="trainingjob",le="%s"}'
    return [(of % "10", f"0+{short}x60"), (of % "100", f"0+{short + long}x60"),
            (of % "+Inf", f"0+{short + long}x60")]


def activities(pod, **per_minute):
    return [(f'starling_worker_activity_seconds_total{{{OF_JOB},pod="{pod}",activity="{name}"}}',
             f"0+{seconds}x60") for name, seconds in per_minute.items()]


def workers(**compute):
    series = []
    for pod, seconds in compute.items():
        series += activities(pod, compute=seconds, waiting=60 - seconds)
        series.append((f'starling_worker_steps_total{{{OF_JOB},pod="{pod}"}}', "0+60x60"))
    return series


def checkpoint(age, interval=60):
    # time() begins at 0: a checkpoint of minute 1 ages, one that follows does not.
    written = "60x60" if age == "old" else "0+60x60"
    return [(f"starling_job_last_checkpoint_timestamp_seconds{{{OF_JOB}}}", written),
            (f"starling_job_checkpoint_interval_seconds{{{OF_JOB}}}", f"{interval}x60")]


def no_checkpoint(began):
    of = f'{{{OF_JOB},role="coordinator"}}'
    return [(f"starling_job_last_checkpoint_timestamp_seconds{of}", "0x60"),
            (f"process_start_time_seconds{of}", f"{began}x60"),
            (f"starling_job_checkpoint_interval_seconds{of}", "60x60")]


def snapshot(age):
    written = "60x60" if age == "old" else "0+60x60"
    return [(f'starling_server_last_snapshot_timestamp_seconds{{{OF_JOB},pod="s"}}', written),
            (f"starling_job_checkpoint_interval_seconds{{{OF_JOB}}}", "60x60")]


def answers(ok, failed):
    return [('starling_http_requests_total{route="getJob",code="200"}', f"0+{ok}x60"),
            ('starling_http_requests_total{route="getJob",code="503"}', f"0+{failed}x60"),
            # What callers do wrong, and what they ask too much of, are no failures.
            ('starling_http_requests_total{route="getJob",code="404"}', "0+50x60"),
            ('starling_http_requests_total{route="getJob",code="429"}', "0+50x60")]


def answer_times(route, short, long):
    of = 'starling_http_request_duration_seconds_bucket{route="%s",le="%s"}'
    return [(of % (route, "0.5"), f"0+{short}x60"), (of % (route, "2.5"), f"0+{short + long}x60"),
            (of % (route, "+Inf"), f"0+{short + long}x60")]


def ended(failed, succeeded, since=10):
    of = 'starling_controller_jobs_finished_total{job_namespace="ns",result="%s",reason="%s"}'
    # The series appear with their first job, as they do in life.
    return [(of % ("Failed", "TrainingFailed"), f"_x{since} {failed}x60"),
            (of % ("Succeeded", "TrainingFinished"), f"_x{since} {succeeded}x60")]


CASES = [
    Case("NoLeader", [(LEADER % "a", "0x10"), (LEADER % "b", "0x10")], "5m",
         {"severity": "critical"},
         "no controller leads: jobs train on, but nothing starts, heals or ends"),
    Case("NoLeader", [("unrelated", "1x10")], "5m", {"severity": "critical"},
         "no controller leads: jobs train on, but nothing starts, heals or ends"),
    Case("NoLeader", [(LEADER % "a", "0x10"), (LEADER % "b", "1x10")], "5m", None, ""),

    Case("ReconcileErrors",
         [(f"controller_runtime_reconcile_errors_total{{{CONTROLLER}}}", "0+20x60"),
          (f'controller_runtime_reconcile_total{{{CONTROLLER},result="error"}}', "0+20x60"),
          (f'controller_runtime_reconcile_total{{{CONTROLLER},result="success"}}', "0+80x60")],
         "30m", {"severity": "warning"}, "20% of reconciles fail"),
    Case("ReconcileErrors",
         [(f"controller_runtime_reconcile_errors_total{{{CONTROLLER}}}", "0+5x60"),
          (f'controller_runtime_reconcile_total{{{CONTROLLER},result="error"}}', "0+5x60"),
          (f'controller_runtime_reconcile_total{{{CONTROLLER},result="success"}}', "0+95x60")],
         "30m", None, ""),

    Case("QueueSlow", waits(50, 50), "30m", {"severity": "warning"},
         "jobs wait 1m 38s before the controller looks at them"),
    Case("QueueSlow", waits(100, 0), "30m", None, ""),

    Case("ApiServerRefuses", requests(90, 10), "30m", {"severity": "warning"},
         "10% of the controller's requests are refused or fail"),
    Case("ApiServerRefuses", requests(99, 1), "30m", None, ""),

    Case("JobStalled", [(f"starling_job_step{{{OF_JOB}}}", "7x60"),
                        (f'starling_job_members{{{OF_JOB},role="worker"}}', "2x60")], "30m",
         {**JOB, "severity": "warning"},
         "ns/digits has workers, and has not made a step for a quarter of an hour"),
    Case("JobStalled", [(f"starling_job_step{{{OF_JOB}}}", "0+1x60"),
                        (f'starling_job_members{{{OF_JOB},role="worker"}}', "2x60")], "30m",
         None, ""),
    # Nobody is there to make a step.
    Case("JobStalled", [(f"starling_job_step{{{OF_JOB}}}", "7x60"),
                        (f'starling_job_members{{{OF_JOB},role="worker"}}', "0x60")], "30m",
         None, ""),

    Case("JobFlapping",
         [(f'starling_job_incidents_total{{{OF_JOB},reason="WorkerLost"}}', "0+1x60")], "40m",
         {**JOB, "severity": "warning"},
         "ns/digits has lost members 30 times in half an hour"),
    # A failure that has healed does not fire on.
    Case("JobFlapping",
         [(f'starling_job_incidents_total{{{OF_JOB},reason="WorkerLost"}}', "0+1x10 10x50")],
         "55m", None, ""),

    Case("JobUnderstaffed",
         [(f'starling_job_members{{{OF_JOB},role="worker"}}', "2x60"),
          (f'starling_job_members_wanted{{{OF_JOB},role="worker"}}', "3x60")], "30m",
         {**JOB, "role": "worker", "severity": "info"},
         "ns/digits trains with fewer members of role worker than it wants"),
    Case("JobUnderstaffed",
         [(f'starling_job_members{{{OF_JOB},role="worker"}}', "2x15 3x60"),
          (f'starling_job_members_wanted{{{OF_JOB},role="worker"}}', "3x60")], "30m", None, ""),

    Case("GoodputLow", activities("a", compute=30, recovery=30), "40m",
         {**JOB, "severity": "info"}, "only 50% of the workers' time of ns/digits goes into "
         "training"),
    Case("GoodputLow", activities("a", input=15, compute=15, exchange=15, optimizer=5, idle=10),
         "40m", None, ""),

    Case("Straggler", workers(a=20, b=20, c=50), "40m", {**JOB, "pod": "c", "severity": "info"},
         "c works longer on each step than the others of ns/digits, which wait for it"),
    Case("Straggler", workers(a=20, b=50), "40m", {**JOB, "pod": "b", "severity": "info"},
         "b works longer on each step than the others of ns/digits, which wait for it"),
    Case("Straggler", workers(a=20, b=24, c=22), "40m", None, ""),

    Case("CheckpointStale", checkpoint("old"), "30m", {**JOB, "severity": "warning"},
         "ns/digits has had no new checkpoint for 29m 0s"),
    Case("CheckpointStale", checkpoint("new"), "30m", None, ""),
    Case("CheckpointStale", no_checkpoint(60), "30m",
         {**JOB, "role": "coordinator", "severity": "warning"},
         "ns/digits has had no new checkpoint for 29m 0s"),
    Case("CheckpointStale", no_checkpoint(1500), "30m", None, ""),
    # A job that writes one every hour has not missed one.
    Case("CheckpointStale", checkpoint("old", interval=3600), "30m", None, ""),
    # One that writes none by itself does not miss any.
    Case("CheckpointStale", checkpoint("old", interval=0), "30m", None, ""),

    Case("ServerSnapshotStale", snapshot("old"), "30m",
         {**JOB, "pod": "s", "severity": "warning"},
         "s of ns/digits wrote its newest snapshot 29m 0s ago"),
    Case("ServerSnapshotStale", snapshot("new"), "30m", None, ""),

    Case("CheckpointFailing",
         [(f'starling_worker_checkpoints_total{{{OF_JOB},pod="a",result="failed"}}', "0+1x60")],
         "20m", {**JOB, "severity": "warning"}, "ns/digits cannot write checkpoints"),
    Case("CheckpointFailing",
         [(f'starling_server_snapshots_total{{{OF_JOB},pod="s",result="failed"}}', "0+1x60")],
         "20m", {**JOB, "severity": "warning"}, "ns/digits cannot write checkpoints"),
    Case("CheckpointFailing",
         [(f'starling_worker_checkpoints_total{{{OF_JOB},pod="a",result="written"}}', "0+1x60"),
          (f'starling_worker_checkpoints_total{{{OF_JOB},pod="a",result="failed"}}', "3x60")],
         "20m", None, ""),

    Case("JobsFail", ended(3, 1), "20m", {"job_namespace": "ns", "severity": "info"},
         "most jobs of ns that ended within the hour have failed"),
    Case("JobsFail", ended(3, 7), "20m", None, ""),
    Case("JobsFail", ended(2, 0), "20m", None, ""),

    Case("JobsUnscraped",
         [('starling_controller_jobs{job_namespace="ns",state="Running"}', "2x60")], "30m",
         {"job_namespace": "ns", "severity": "warning"},
         "jobs run in ns, but nobody scrapes them"),
    Case("JobsUnscraped",
         [('starling_controller_jobs{job_namespace="ns",state="Running"}', "2x60"),
          (f"starling_job_step{{{OF_JOB}}}", "0+1x60")], "30m", None, ""),

    Case("FileDescriptorsLow", [BUILD, ('process_open_fds{instance="c"}', "90x60"),
                                ('process_max_fds{instance="c"}', "100x60")], "30m",
         {"instance": "c", "severity": "warning"}, "c has 90% of its files open"),
    # Somebody else's process.
    Case("FileDescriptorsLow", [BUILD, ('process_open_fds{instance="d"}', "90x60"),
                                ('process_max_fds{instance="d"}', "100x60")], "30m", None, ""),
    Case("FileDescriptorsLow", [BUILD, ('process_open_fds{instance="c"}', "9x60"),
                                ('process_max_fds{instance="c"}', "100x60")], "30m", None, ""),

    Case("RestErrors", answers(95, 5), "30m", {"severity": "warning"},
         "2.5% of REST's answers tell of a failure of its own"),
    Case("RestErrors", answers(100, 1), "30m", None, ""),

    Case("RestSlow", answer_times("listJobs", 50, 50) + answer_times("getJob", 100, 0), "30m",
         {"route": "listJobs", "severity": "warning"}, "REST takes 2.46s to answer listJobs"),
    Case("RestSlow", answer_times("listJobs", 100, 0), "30m", None, ""),

    Case("StreamsNearLimit", [('starling_http_streams{instance="c"}', "1300x60"),
                              ('starling_http_streams_limit{instance="c"}', "1500x60")], "30m",
         {"instance": "c", "severity": "warning"}, "c has 86.67% of its streams open"),
    Case("StreamsNearLimit", [('starling_http_streams{instance="c"}', "1100x60"),
                              ('starling_http_streams_limit{instance="c"}', "1500x60")], "30m",
         None, ""),

    Case("HistoryFull", [("starling_history_bytes", "95x60"),
                         ("starling_history_limit_bytes", "100x60")], "30m",
         {"severity": "warning"},
         "the history is 95% full: the oldest jobs are forgotten soon"),
    Case("HistoryFull", [("starling_history_bytes", "80x60"),
                         ("starling_history_limit_bytes", "100x60")], "30m", None, ""),
    # Without a bound.
    Case("HistoryFull", [("starling_history_bytes", "80x60"),
                         ("starling_history_limit_bytes", "0x60")], "30m", None, ""),

    Case("HistoryBehind", [('starling_history_lag_seconds{instance="c"}', "0+60x60")], "30m",
         {"instance": "c", "severity": "warning"},
         "c has not written to the history for 30m 0s"),
    # It has caught up.
    Case("HistoryBehind", [('starling_history_lag_seconds{instance="c"}', "0+60x10 0x50")], "30m",
         None, ""),
]

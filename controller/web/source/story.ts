// SPDX-License-Identifier: Apache-2.0
// What a job's state means to a person: why it is as it is, where its seconds went, which pods lived
// when. Pure functions over what the service answers; to explain another activity: a row in ACTIVITIES.
import type { Condition, Curves, Incident, Job, Pod, Point } from './types';
import { formatPercent, formatSeconds, sentence, timeOf, words } from './format';

export interface Activity {
  name: string;
  label: string;
  // What a large share of it means, after "31 % of the workers' time".
  means: string;
  useful?: boolean;
}

// In the order in which they are drawn.
export const ACTIVITIES: Activity[] = [
  { name: 'compute', label: 'Compute', means: 'goes into computing', useful: true },
  { name: 'optimizer', label: 'Optimizer', means: 'goes into applying updates', useful: true },
  { name: 'input', label: 'Input', means: 'is spent on reading samples: the storage or the loader is the bottleneck' },
  {
    name: 'exchange',
    label: 'Exchange',
    means: 'is spent on exchanging updates: a larger batch, a codec or a faster network would help',
  },
  { name: 'waiting', label: 'Waiting', means: 'is spent on waiting for slower workers' },
  {
    name: 'checkpoint',
    label: 'Checkpoint',
    means: 'is spent on checkpoints: a longer checkpoint.interval would help',
  },
  { name: 'starting', label: 'Starting', means: 'was spent on starting processes and reading models and data' },
  { name: 'joining', label: 'Joining', means: 'was spent on changes of who takes part' },
  {
    name: 'queueing',
    label: 'Queueing',
    means: 'went by before there was a process: no place, no image, no start yet',
  },
  { name: 'recovery', label: 'Recovery', means: 'was spent on recovering from failures' },
  { name: 'repeated', label: 'Repeated', means: 'was spent on computing again what a failure had undone' },
  { name: 'idle', label: 'Idle', means: 'was spent idle: paused, delayed (experiment.stepDelay) or without work' },
];

export interface Share {
  name: string;
  label: string;
  seconds: number;
  share: number;
}

// The workers' seconds by activity; what is none of ours comes last. `role` is that of the ledger's
// names: workers have none, servers are server/NAME.
export function sharesOf(goodput: Record<string, number> | undefined, role = ''): Share[] {
  const prefix = role ? `${role}/` : '';
  const seconds = new Map<string, number>();
  for (const [name, value] of Object.entries(goodput ?? {})) {
    if (!name.startsWith(prefix) || (!role && name.includes('/'))) continue;
    if (Number.isFinite(value) && value > 0) seconds.set(name.slice(prefix.length), value);
  }
  const total = [...seconds.values()].reduce((sum, value) => sum + value, 0);
  const order = (name: string) => {
    const place = ACTIVITIES.findIndex((activity) => activity.name === name);
    return place < 0 ? ACTIVITIES.length : place;
  };
  return [...seconds]
    .sort(([a], [b]) => order(a) - order(b) || a.localeCompare(b))
    .map(([name, value]) => ({
      name,
      label: ACTIVITIES.find((activity) => activity.name === name)?.label ?? sentence(name),
      seconds: value,
      share: value / total,
    }));
}

export interface Finding {
  tone: 'good' | 'note' | 'bad';
  text: string;
}

const conditionOf = (job: Job, type: string): Condition | undefined =>
  job.status?.conditions?.find((condition) => condition.type === type);

const says = (condition: Condition | undefined): string =>
  condition ? sentence(condition.message || words(condition.reason ?? '')) : '';

export const isFinished = (job: Job): boolean =>
  ['Succeeded', 'Failed'].some((type) => conditionOf(job, type)?.status === 'True');

// Of a job of the history, in RFC 3339; nothing: it is there.
export const deletedAt = (job: Job): string | undefined => job.metadata.annotations?.['starling.dev/deleted-at'];

// In seconds since 1970; nothing: it has not ended.
export const endOf = (job: Job): number | undefined => timeOf(job.status?.completionTime) ?? timeOf(deletedAt(job));

// Of a job as it was last heard of: one that was deleted on its way has not the state that it had.
export const stateOf = (state: string | undefined, deleted: boolean): string =>
  deleted && state !== 'Succeeded' && state !== 'Failed' ? 'Deleted' : (state ?? 'Pending');

export const isSuspended = (job: Job): boolean => job.spec.runPolicy?.suspend === true;

const SLOW = 0.15; // a share that is worth a sentence

function slowness(job: Job): Finding[] {
  const shares = sharesOf(job.status?.goodput);
  const found: Finding[] = [];
  for (const { name, share } of [...shares].sort((a, b) => b.share - a.share)) {
    const activity = ACTIVITIES.find((one) => one.name === name);
    if (!activity || activity.useful || share < SLOW) continue;
    found.push({ tone: 'note', text: `${formatPercent(share)} of the workers’ time ${activity.means}.` });
  }
  const useful = shares.filter(({ name }) => ACTIVITIES.some((one) => one.name === name && one.useful));
  const share = useful.reduce((sum, one) => sum + one.share, 0);
  if (found.length === 0 && share > 0.5) {
    found.push({ tone: 'good', text: `${formatPercent(share)} of the workers’ time goes into computing.` });
  }
  return found.slice(0, 3);
}

interface Outage {
  from: number;
  to: number;
  seconds: number;
  steps: number;
}

const SECOND = 1; // as exact as the times of a status are

// Losses that were mended together have cost the same seconds and steps, each incident tells all of them:
// what overlaps is one outage.
function outagesOf(incidents: Incident[]): Outage[] {
  const outages = incidents.map((incident): Outage => {
    const noticed = timeOf(incident.time) ?? Number.NaN; // overlaps with nothing
    const [before, after] = [incident.detectionSeconds ?? 0, incident.recoverySeconds ?? 0];
    const steps = incident.repeatedSteps ?? 0;
    return { from: noticed - before, to: noticed + after, seconds: before + after, steps };
  });
  outages.sort((a, b) => a.from - b.from || 0);
  const merged: Outage[] = [];
  for (const outage of outages) {
    const last = merged.at(-1);
    if (last && outage.from <= last.to + SECOND) {
      last.to = Math.max(last.to, outage.to);
      last.seconds = Math.max(last.seconds, outage.seconds, last.to - last.from);
      last.steps = Math.max(last.steps, outage.steps);
    } else {
      merged.push(outage);
    }
  }
  return merged;
}

function losses(job: Job): Finding[] {
  const incidents = job.status?.incidents ?? [];
  if (incidents.length === 0) return [];
  const outages = outagesOf(incidents);
  const seconds = outages.reduce((total, one) => total + one.seconds, 0);
  const steps = outages.reduce((total, one) => total + one.steps, 0);
  const what = incidents.length === 1 ? '1 incident' : `${incidents.length} incidents`;
  const again = steps === 1 ? '1 step was' : `${steps} steps were`;
  return [{ tone: 'note', text: `${what} cost ${formatSeconds(seconds)} in all; ${again} computed again.` }];
}

// Why the job is as it is, what matters most first.
export function explain(job: Job): Finding[] {
  const found: Finding[] = [];
  const failed = conditionOf(job, 'Failed');
  if (failed?.status === 'True') found.push({ tone: 'bad', text: says(failed) });
  const succeeded = conditionOf(job, 'Succeeded');
  if (succeeded?.status === 'True') found.push({ tone: 'good', text: `${says(succeeded)}.`.replace('..', '.') });
  const suspended = conditionOf(job, 'Suspended');
  if (suspended?.status === 'True') found.push({ tone: 'note', text: says(suspended) });
  const degraded = conditionOf(job, 'Degraded');
  if (degraded?.status === 'True') found.push({ tone: 'bad', text: says(degraded) });
  const running = conditionOf(job, 'Running');
  if (!isFinished(job) && suspended?.status !== 'True' && running?.status !== 'True') {
    found.push({ tone: 'note', text: says(running) || 'The controller has not begun with it yet.' });
  }
  return [...found, ...slowness(job), ...losses(job)];
}

// How far it is, 0 to 1; nothing: nobody knows.
export function fractionOf(job: Job): number | undefined {
  const progress = job.status?.progress;
  if (conditionOf(job, 'Succeeded')?.status === 'True') return 1;
  if (progress?.totalSteps && progress.step !== undefined) return Math.min(1, progress.step / progress.totalSteps);
  return fractionOfSummary(progress?.summary);
}

// Of "epoch 3/20".
export function fractionOfSummary(text: string | undefined): number | undefined {
  const parts = /(\d+)\/(\d+)/.exec(text ?? '');
  if (!parts || Number(parts[2]) === 0) return undefined;
  return Math.min(1, Number(parts[1]) / Number(parts[2]));
}

// Which chart a metric belongs to. Bytes of the exchange have none: each worker that reports counts
// from its own beginning, and beside shares from 0 to 1 they would flatten these.
export function panelOf(metric: string): 'loss' | 'speed' | 'quality' | 'none' {
  if (metric.startsWith('exchange/')) return 'none';
  if (metric === 'samplesPerSecond') return 'speed';
  return metric.split('/').pop() === 'loss' ? 'loss' : 'quality';
}

// The curves with newer points behind them; both ascend in steps.
export function mergeCurves(known: Curves, fresh: Curves): Curves {
  const merged: Curves = { ...known };
  for (const [name, points] of Object.entries(fresh)) {
    const first = points[0];
    if (!first) continue;
    const kept = (known[name] ?? []).filter((point) => point[0] < first[0]);
    merged[name] = [...kept, ...points];
  }
  return merged;
}

export function lastStepOf(curves: Curves): number {
  return Math.max(-1, ...Object.values(curves).map((points) => points[points.length - 1]?.[0] ?? -1));
}

// When the curves' clock began, in seconds since 1970. Of a job that has ended, its last point is its
// end; else the newest point is about as old as the answer that brought it.
export function beginOfCurves(job: Job, curves: Curves, now: number): number | undefined {
  let last: Point | undefined;
  for (const points of Object.values(curves)) {
    const point = points[points.length - 1];
    if (point && (!last || point[1] > last[1])) last = point;
  }
  if (!last) return undefined;
  const suspended = conditionOf(job, 'Suspended');
  const ended = endOf(job) ?? (suspended?.status === 'True' ? timeOf(suspended.lastTransitionTime) : undefined);
  return (ended ?? now) - last[1];
}

// One process of a pod's name, from its start to its end.
export interface Life {
  pod: string;
  role: string;
  uid: string;
  from: number; // seconds since 1970
  to?: number; // it has ended
  failed?: boolean;
}

const roleOf = (pod: Pod): string => pod.metadata.labels?.['starling.dev/role'] ?? '';

function lifeOf(pod: Pod): Life {
  const state = pod.status?.containerStatuses?.[0]?.state;
  const ended = timeOf(state?.terminated?.finishedAt);
  return {
    pod: pod.metadata.name,
    role: roleOf(pod),
    uid: pod.metadata.uid,
    from: timeOf(pod.status?.startTime) ?? timeOf(pod.metadata.creationTimestamp) ?? 0,
    to: ended,
    failed: pod.status?.phase === 'Failed',
  };
}

// Pods that were there and are not any more have ended by now: their names are used again, and the
// service tells only of those that there are.
export function rememberPods(seen: ReadonlyMap<string, Life>, pods: Pod[], now: number): Map<string, Life> {
  const remembered = new Map(seen);
  const present = new Set(pods.map((pod) => pod.metadata.uid));
  for (const [uid, life] of remembered) {
    if (!present.has(uid) && life.to === undefined) remembered.set(uid, { ...life, to: now });
  }
  for (const pod of pods) remembered.set(pod.metadata.uid, lifeOf(pod));
  return remembered;
}

// Lives by pod name, in the order of their roles and numbers. Those that ended before anybody looked
// are known by their incidents alone.
export function livesOf(job: Job, seen: ReadonlyMap<string, Life>): Map<string, Life[]> {
  const lives = [...seen.values()].map((life) => ({ ...life }));
  const began = timeOf(job.status?.startTime);
  for (const incident of job.status?.incidents ?? []) {
    const time = timeOf(incident.time);
    if (!incident.pod || !incident.podUid || time === undefined) continue;
    const known = lives.find((life) => life.uid === incident.podUid);
    if (known) {
      if (known.to !== undefined && known.to >= time - 1) {
        known.to = Math.min(known.to, Math.max(time, known.from));
        known.failed = true;
      }
      continue;
    }
    const before = lives.filter((life) => life.pod === incident.pod && (life.to ?? Infinity) < time);
    const from = Math.max(began ?? time, ...before.map((life) => life.to ?? 0));
    const role = lives.find((life) => life.pod === incident.pod)?.role ?? '';
    lives.push({ pod: incident.pod, role, uid: incident.podUid, from, to: time, failed: true });
  }
  const grouped = new Map<string, Life[]>();
  const place = (life: Life) => ['coordinator', 'worker', 'parameterServer'].indexOf(life.role);
  lives.sort((a, b) => place(a) - place(b) || a.pod.localeCompare(b.pod, 'en', { numeric: true }) || a.from - b.from);
  for (const life of lives) grouped.set(life.pod, [...(grouped.get(life.pod) ?? []), life]);
  return grouped;
}

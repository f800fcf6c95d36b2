// SPDX-License-Identifier: Apache-2.0
// One job: how far it is, why it is as it is, its curves, where its seconds went, and the evidence.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';

import { Actions } from './actions';
import { CurvePanels } from './curves';
import { formatAge, formatDate, formatNumber, formatSeconds, parseDuration, timeOf } from './format';
import { Incidents } from './incidents';
import { Logs } from './logs';
import { Go, ProgressBar, StateBadge, Tabs, Trouble, useNow } from './parts';
import { useNavigation } from './place';
import { PodStrips } from './pods';
import { Seconds } from './seconds';
import {
  beginOfCurves,
  deletedAt,
  endOf,
  explain,
  type Finding,
  fractionOf,
  isFinished,
  livesOf,
  stateOf,
} from './story';
import { EventsTab, PodsTab, TableTab, YamlTab } from './tabs';
import type { Curves, Job } from './types';
import { useCurves, useJob, usePods } from './watch_job';

interface Digit {
  label: string;
  value: string;
  total?: string;
  note?: string;
}

// The most telling of the named metrics, which is that of the validation data.
function qualityOf(job: Job): Digit | null {
  const metrics = job.status?.result?.metrics ?? job.status?.progress?.metrics ?? {};
  const names = Object.keys(metrics)
    .filter((name) => name.split('/').pop() !== 'loss')
    .sort();
  const name = names.find((one) => one.startsWith('validation/')) ?? names[0];
  if (!name) return null;
  return { label: name.replace('validation/', 'validation '), value: formatNumber(metrics[name]) };
}

function elapsed(job: Job, now: number): number | undefined {
  if (job.status?.result?.seconds !== undefined) return job.status.result.seconds;
  const began = timeOf(job.status?.startTime);
  return began === undefined ? undefined : (endOf(job) ?? now) - began;
}

function digitsOf(job: Job, now: number): Digit[] {
  const over = endOf(job) !== undefined;
  const { progress, incidents, replicaStatuses } = job.status ?? {};
  const of = (value: number | undefined, total: number | undefined) => ({
    value: formatNumber(value),
    total: total ? formatNumber(total) : undefined,
  });
  const wanted = job.spec.replicaSpecs?.['worker']?.replicas;
  const digits: (Digit | null)[] = [
    { label: 'Epoch', ...of(progress?.epoch, progress?.totalEpochs) },
    { label: 'Step', ...of(progress?.step, progress?.totalSteps) },
    { label: 'Loss', value: formatNumber(progress?.loss) },
    qualityOf(job),
    over ? null : { label: 'Samples a second', value: formatNumber(progress?.samplesPerSecond, 3) },
    over ? null : { label: 'Workers', ...of(replicaStatuses?.['worker']?.ready ?? progress?.workers, wanted) },
    over
      ? { label: 'Took', value: formatSeconds(elapsed(job, now)) }
      : {
          label: 'Remaining',
          value: formatSeconds(parseDuration(progress?.estimatedRemaining)),
          note: `running for ${formatSeconds(elapsed(job, now))}`,
        },
    { label: 'Incidents', value: String(incidents?.length ?? 0) },
  ];
  return digits.filter((digit): digit is Digit => digit !== null);
}

function Digits({ job }: { job: Job }) {
  const now = useNow();
  return (
    <dl class="digits">
      {digitsOf(job, now).map(({ label, value, total, note }) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>
            {value}
            {total && <small> / {total}</small>}
          </dd>
          {note && <dd class="faint">{note}</dd>}
        </div>
      ))}
    </dl>
  );
}

const MARKS = { good: '✓', note: '→', bad: '!' };

function Findings({ findings }: { findings: Finding[] }) {
  if (findings.length === 0) return null;
  return (
    <ul class="findings" aria-label="Why it is as it is">
      {findings.map(({ tone, text }) => (
        <li key={text} class={tone}>
          <span aria-hidden="true">{MARKS[tone]}</span> {text}
        </li>
      ))}
    </ul>
  );
}

function Kept({ job }: { job: Job }) {
  const now = useNow(5000);
  const checkpoint = job.status?.lastCheckpoint;
  const creator = job.metadata.annotations?.['starling.dev/created-by'];
  const keep = job.spec.runPolicy?.ttlSecondsAfterFinished;
  const parts = [
    `Created ${formatDate(job.metadata.creationTimestamp)}${creator ? ` by ${creator}` : ''}`,
    checkpoint?.step !== undefined &&
      !isFinished(job) &&
      `newest checkpoint at step ${formatNumber(checkpoint.step)}, ${formatAge(checkpoint.time, now)} ago`,
    keep !== undefined && `kept for ${formatSeconds(keep)} after its end`,
  ];
  return <p class="faint">{parts.filter(Boolean).join(' · ')}</p>;
}

const TABS = [
  { id: 'incidents', label: 'Incidents' },
  { id: 'pods', label: 'Pods' },
  { id: 'logs', label: 'Logs' },
  { id: 'table', label: 'Table' },
  { id: 'events', label: 'Events' },
  { id: 'yaml', label: 'YAML' },
];

function Body({ job, curves, gone }: { job: Job; curves: Curves; gone: boolean }) {
  const { place, go } = useNavigation();
  const { pods, seen } = usePods(job, gone);
  const now = useNow(1000);
  const incidents = job.status?.incidents ?? [];
  const lives = useMemo(() => livesOf(job, seen), [job.status?.incidents, job.status?.startTime, seen]);
  // The newest point is as old as the answer: the earliest estimate is the best.
  const began = useRef<{ uid: string; zero: number | undefined }>({ uid: '', zero: undefined });
  const zero = beginOfCurves(job, curves, Date.now() / 1000);
  if (began.current.uid !== job.metadata.uid) began.current = { uid: job.metadata.uid, zero: undefined };
  if (zero !== undefined) began.current.zero = Math.min(zero, began.current.zero ?? Infinity);
  const tab = TABS.some(({ id }) => id === place.tab) ? place.tab : 'incidents';
  const ends = [...lives.values()].flat().map((life) => life.to ?? 0);
  const until = isFinished(job) || gone ? (endOf(job) ?? Math.max(...ends)) : now;
  return (
    <>
      <CurvePanels curves={curves} incidents={incidents} began={began.current.zero} />
      <div class="pair">
        <Seconds goodput={job.status?.goodput} />
        <PodStrips job={job.metadata.name} lives={lives} incidents={incidents} now={until} />
      </div>
      <Tabs
        tabs={TABS.map((one) =>
          one.id === 'incidents' && incidents.length > 0 ? { ...one, label: `Incidents (${incidents.length})` } : one,
        )}
        current={tab}
        onChoose={(id) => go({ ...place, tab: id === 'incidents' ? '' : id, pod: '' }, { replace: true })}
      >
        {tab === 'incidents' && <Incidents incidents={incidents} />}
        {tab === 'pods' && <PodsTab pods={pods} />}
        {tab === 'logs' && (
          <Logs ns={job.metadata.namespace} name={job.metadata.name} pods={pods.map((pod) => pod.metadata.name)} />
        )}
        {tab === 'table' && <TableTab curves={curves} />}
        {tab === 'events' && <EventsTab job={job} />}
        {tab === 'yaml' && <YamlTab job={job} />}
      </Tabs>
    </>
  );
}

export function JobView({ ns, name }: { ns: string; name: string }) {
  const { place } = useNavigation();
  const { job, link, gone, error, take } = useJob(ns, name, place.uid, place.tab === 'logs');
  const curves = useCurves(job, place.uid);
  const [said, setSaid] = useState('');
  useEffect(() => {
    document.title = `${name} · Starling`;
    return () => {
      document.title = 'Starling';
    };
  }, [name]);
  if (!job) {
    return (
      <main tabIndex={-1}>
        <nav class="crumbs" aria-label="Back">
          <Go to={{}}>Jobs</Go>
        </nav>
        <h1>{name}</h1>
        {error ? (
          <Trouble error={error} />
        ) : (
          <p class="empty" aria-busy="true">
            {link === 'broken' ? 'The server does not answer; trying again.' : 'Reading the job.'}
          </p>
        )}
      </main>
    );
  }
  const state = job.metadata.deletionTimestamp && !gone ? 'Deleting' : stateOf(job.status?.state, gone);
  return (
    <main tabIndex={-1}>
      <nav class="crumbs" aria-label="Back">
        <Go to={{}}>Jobs</Go> / {ns}
      </nav>
      <div class="title">
        <h1>{name}</h1>
        <StateBadge state={state} />
        {!gone && <Actions job={job} onChanged={take} onSaid={setSaid} />}
      </div>
      <p class="said" role="status">
        {gone
          ? `This job was deleted${deletedAt(job) ? ` on ${formatDate(deletedAt(job))}` : ''}: what you see is the last that was heard of it.`
          : link === 'broken'
            ? 'The connection broke. What you see may be old; trying again.'
            : said}
      </p>
      <ProgressBar fraction={fractionOf(job)} label={`Progress of ${name}`} />
      <Digits job={job} />
      <Findings findings={explain(job)} />
      <Body job={job} curves={curves} gone={gone} />
      <Kept job={job} />
    </main>
  );
}

// SPDX-License-Identifier: Apache-2.0
// A job as lists: its pods, its numbers, its events, its YAML.
import { dump } from 'js-yaml';
import { useMemo, useState } from 'preact/hooks';

import { formatAge, formatClock, formatDate, formatNumber, formatTime, words } from './format';
import { Trouble, useNow, usePoll } from './parts';
import { useNavigation } from './place';
import { ask, jobPath, withQuery } from './rest';
import type { Curves, Job, JobEvent, Pod } from './types';

function stateOf(pod: Pod): string {
  const state = pod.status?.containerStatuses?.[0]?.state;
  if (pod.metadata.deletionTimestamp) return 'Terminating';
  if (state?.waiting?.reason) return words(state.waiting.reason);
  if (state?.terminated) return `${pod.status?.phase ?? 'Ended'}, exit code ${state.terminated.exitCode ?? '?'}`;
  return pod.status?.phase ?? 'Pending';
}

export function PodsTab({ pods }: { pods: Pod[] }) {
  const { place, go } = useNavigation();
  const now = useNow(5000);
  if (pods.length === 0) return <p class="empty">There is no pod now.</p>;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Pods">
      <table>
        <thead>
          <tr>
            <th scope="col">Pod</th>
            <th scope="col">State</th>
            <th scope="col">Node</th>
            <th scope="col">Address</th>
            <th scope="col" class="number">
              Process
            </th>
            <th scope="col" class="number">
              Since
            </th>
            <th scope="col">
              <span class="unseen">Log</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {pods.map((pod) => (
            <tr key={pod.metadata.uid}>
              <td>
                <code>{pod.metadata.name}</code>
              </td>
              <td>{stateOf(pod)}</td>
              <td>{pod.spec?.nodeName ?? '–'}</td>
              <td>{pod.status?.podIP ?? '–'}</td>
              <td class="number">{pod.metadata.annotations?.['starling.dev/pid'] ?? '–'}</td>
              <td class="number" title={formatDate(pod.status?.startTime)}>
                {formatAge(pod.status?.startTime, now)}
              </td>
              <td>
                <button
                  type="button"
                  class="plain"
                  onClick={() => go({ ...place, tab: 'logs', pod: pod.metadata.name })}
                >
                  Log<span class="unseen"> of {pod.metadata.name}</span>
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const ROWS = 200;

// A row a step, newest first; what is measured seldom has a dash in between.
export function TableTab({ curves }: { curves: Curves }) {
  const names = useMemo(() => Object.keys(curves).sort(), [curves]);
  const rows = useMemo(() => {
    const steps = new Map<number, { seconds: number; values: Record<string, number> }>();
    for (const [name, points] of Object.entries(curves)) {
      for (const [step, seconds, value] of points) {
        const row = steps.get(step) ?? { seconds, values: {} };
        row.values[name] = value;
        steps.set(step, row);
      }
    }
    return [...steps].sort(([a], [b]) => b - a);
  }, [curves]);
  if (rows.length === 0) return <p class="empty">No numbers yet.</p>;
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Numbers of the curves">
        <table>
          <thead>
            <tr>
              <th scope="col" class="number">
                Step
              </th>
              <th scope="col" class="number">
                Time
              </th>
              {names.map((name) => (
                <th key={name} scope="col" class="number">
                  {name === 'samplesPerSecond' ? 'samples/s' : name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, ROWS).map(([step, row]) => (
              <tr key={step}>
                <td class="number">{formatNumber(step)}</td>
                <td class="number">{formatClock(row.seconds)}</td>
                {names.map((name) => (
                  <td key={name} class="number">
                    {formatNumber(row.values[name])}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > ROWS && (
        <p class="faint">
          The newest {ROWS} of {rows.length} points; the service has them all.
        </p>
      )}
    </>
  );
}

export function EventsTab({ job }: { job: Job }) {
  const { place } = useNavigation();
  const [events, setEvents] = useState<JobEvent[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  usePoll(
    async () => {
      try {
        const { items } = await ask<{ items: JobEvent[] }>(
          withQuery(`${jobPath(job.metadata.namespace, job.metadata.name)}/events`, { uid: place.uid }),
        );
        setEvents(items.reverse());
        setError(null);
      } catch (caught) {
        setError(caught);
      }
    },
    3000,
    [job.metadata.uid],
  );
  if (error) return <Trouble error={error} />;
  if (!events)
    return (
      <p class="empty" aria-busy="true">
        Reading the events.
      </p>
    );
  if (events.length === 0) return <p class="empty">No event is kept any more: they live for an hour.</p>;
  return (
    <ul class="events">
      {events.map((event, i) => (
        <li key={`${event.eventTime}${event.reason}${i}`} class={event.type === 'Warning' ? 'warning' : ''}>
          <time dateTime={event.eventTime} title={formatDate(event.eventTime)}>
            {formatTime(event.eventTime)}
          </time>
          <b>{words(event.reason ?? '')}</b> <span>{event.note}</span>
        </li>
      ))}
    </ul>
  );
}

// As one would write it in a file, or with all that the service keeps of it.
export function yamlOf(job: Job, whole: boolean): string {
  const { metadata, status, ...rest } = job;
  const { name, namespace, labels } = metadata;
  const written = { ...rest, metadata: { name, namespace, ...(labels ? { labels } : {}) } };
  const { apiVersion, kind, spec } = written;
  const value = whole
    ? { apiVersion, kind, metadata, spec, status }
    : { apiVersion, kind, metadata: written.metadata, spec };
  return dump(value, { lineWidth: 110, noRefs: true, skipInvalid: true });
}

export function YamlTab({ job }: { job: Job }) {
  const [whole, setWhole] = useState(false);
  const [copied, setCopied] = useState(false);
  const text = useMemo(() => yamlOf(job, whole), [job, whole]);
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setCopied(true),
      () => setCopied(false),
    );
  return (
    <>
      <div class="toolbar">
        <label>
          <input type="checkbox" checked={whole} onChange={(event) => setWhole(event.currentTarget.checked)} /> with
          status and metadata
        </label>
        <button type="button" onClick={() => void copy()}>
          Copy text
        </button>
        <span role="status" class="faint">
          {copied && 'Copied.'}
        </span>
      </div>
      <pre class="yaml" tabIndex={0} aria-label="The job as YAML">
        {text}
      </pre>
    </>
  );
}

// SPDX-License-Identifier: Apache-2.0
// The list of jobs: live ones as their stream tells them, past ones by pages of the history.
import { useEffect, useMemo, useState } from 'preact/hooks';

import { formatAge, formatDate, formatNumber, words } from './format';
import { Go, ProgressBar, StateBadge, Trouble, useNow } from './parts';
import { useNavigation } from './place';
import { ask, chooseNamespace, chosenNamespace, jobsPath, type Link, listen, Refused } from './rest';
import { useAbilities } from './session';
import { fractionOfSummary, stateOf } from './story';
import type { Summary } from './types';

interface Page {
  items: Summary[];
  continue?: string;
}

const DRAW_EVERY_MS = 200; // while much happens
const MOST_ROWS = 300; // that are drawn

const newestFirst = (a: Summary, b: Summary) => b.created.localeCompare(a.created) || a.name.localeCompare(b.name);
export const idOf = (job: { namespace: string; name: string }): string => `${job.namespace}/${job.name}`;

function useLiveJobs(ns: string): { jobs: Summary[] | null; link: Link; error: unknown } {
  const [jobs, setJobs] = useState<Map<string, Summary> | null>(null);
  const [link, setLink] = useState<Link>('opening');
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    const known = new Map<string, Summary>();
    let scheduled = 0;
    // However many events come at once, the list is drawn once.
    const show = () => {
      scheduled ||= window.setTimeout(() => {
        scheduled = 0;
        setJobs(new Map(known));
      }, DRAW_EVERY_MS);
    };
    const fresh = new Set<string>();
    let begun = false;
    const close = listen(`${jobsPath(ns)}?watch=1`, {
      link: (state) => {
        setLink(state);
        if (state === 'live') fresh.clear();
      },
      refused: (problem) => setError(new Refused(problem)),
      on: ({ name, data }) => {
        if (name === 'bookmark') {
          // The present state has been told as a whole: what is not in it has gone.
          for (const uid of known.keys()) if (!fresh.has(uid)) known.delete(uid);
          begun = true;
          show();
        }
        if (name !== 'added' && name !== 'modified' && name !== 'deleted') return;
        const { uid, summary } = JSON.parse(data) as { uid: string; summary: Summary };
        fresh.add(uid);
        if (name === 'deleted') known.delete(uid);
        else known.set(uid, summary);
        if (begun) show();
      },
    });
    return () => {
      close();
      clearTimeout(scheduled);
    };
  }, [ns]);
  const list = useMemo(() => (jobs ? [...jobs.values()].sort(newestFirst) : null), [jobs]);
  return { jobs: list, link, error };
}

function matches(job: Summary, find: string): boolean {
  const labels = Object.entries(job.labels ?? {}).map(([name, value]) => `${name}=${value}`);
  const text = [idOf(job), job.state, job.reason ?? '', job.createdBy ?? '', ...labels].join(' ').toLowerCase();
  return find
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

function Row({ job, now }: { job: Summary; now: number }) {
  const state = job.deleting ? 'Deleting' : stateOf(job.state, job.deleted !== undefined);
  return (
    <tr>
      <td class="name" data-label="Job">
        <Go to={{ job: idOf(job), uid: job.deleted ? job.uid : '' }}>{job.name}</Go>
        <span class="faint">
          {job.namespace}
          {job.createdBy && ` · ${job.createdBy}`}
        </span>
      </td>
      <td data-label="State">
        <StateBadge state={state} />
        {job.reason && job.state !== 'Succeeded' && <span class="faint reason">{words(job.reason)}</span>}
        {job.deleted && <span class="faint reason">deleted {formatAge(job.deleted, now)} ago</span>}
      </td>
      <td class="progress" data-label="Progress">
        <ProgressBar
          fraction={job.state === 'Succeeded' ? 1 : fractionOfSummary(job.summary)}
          label={`Progress of ${job.name}`}
        />
        <span>{job.summary ?? '–'}</span>
      </td>
      <td class="number" data-label="Loss">
        {formatNumber(job.loss)}
      </td>
      <td class="number" data-label="Samples/s">
        {job.state === 'Running' ? formatNumber(job.samplesPerSecond, 3) : '–'}
      </td>
      <td class="number" data-label="Workers">
        {formatNumber(job.workers)}
      </td>
      <td class="number" data-label="Age" title={formatDate(job.created)}>
        {formatAge(job.created, now)}
      </td>
    </tr>
  );
}

function Table({ jobs, caption }: { jobs: Summary[]; caption: string }) {
  const now = useNow(5000);
  return (
    <table class="jobs">
      <caption class="unseen">{caption}</caption>
      <thead>
        <tr>
          <th scope="col">Job</th>
          <th scope="col">State</th>
          <th scope="col">Progress</th>
          <th scope="col" class="number">
            Loss
          </th>
          <th scope="col" class="number">
            Samples/s
          </th>
          <th scope="col" class="number">
            Workers
          </th>
          <th scope="col" class="number">
            Age
          </th>
        </tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <Row key={job.uid} job={job} now={now} />
        ))}
      </tbody>
    </table>
  );
}

function Live({ find, ns }: { find: string; ns: string }) {
  const { jobs, link, error } = useLiveJobs(ns);
  if (error) return <Trouble error={error} />;
  if (!jobs)
    return (
      <p class="empty" aria-busy="true">
        {link === 'broken' ? 'The server does not answer; trying again.' : 'Reading the jobs.'}
      </p>
    );
  const found = jobs.filter((job) => matches(job, find));
  return (
    <>
      {link === 'broken' && (
        <p class="notice" role="status">
          The connection broke. What you see may be old; trying again.
        </p>
      )}
      {found.length > 0 && <Table jobs={found.slice(0, MOST_ROWS)} caption="Jobs, newest first" />}
      {found.length > MOST_ROWS && (
        <p class="faint">
          The newest {MOST_ROWS} of {formatNumber(found.length)}; find the others by name, state, label or who made
          them.
        </p>
      )}
      {jobs.length > 0 && found.length === 0 && <p class="empty">No job matches “{find}”.</p>}
      {jobs.length === 0 && <Welcome />}
    </>
  );
}

function Welcome() {
  return (
    <div class="welcome">
      <h2>Nothing trains yet</h2>
      <p>A job is one file: what is computed, on which data, by how many workers.</p>
      <p>
        <Go to={{ view: 'new' }} class="button primary">
          Submit the first job
        </Go>
      </p>
      <p class="faint">
        Or in a terminal: <code>starling submit examples/digits.yaml</code>
      </p>
    </div>
  );
}

function Past({ find, ns }: { find: string; ns: string }) {
  const [jobs, setJobs] = useState<Summary[]>([]);
  const [next, setNext] = useState<string | null>('');
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const more = async () => {
    setBusy(true);
    try {
      const page = await ask<Page>(
        `${jobsPath(ns)}?include=history&limit=100${next ? `&continue=${encodeURIComponent(next)}` : ''}`,
      );
      setJobs((known) => [...known, ...page.items]);
      setNext(page.continue ?? null);
    } catch (caught) {
      setError(caught);
      setNext(null);
    }
    setBusy(false);
  };
  useEffect(() => void more(), []);
  const found = jobs.filter((job) => matches(job, find));
  return (
    <>
      <Trouble error={error} />
      {found.length > 0 && <Table jobs={found} caption="Past jobs, newest first" />}
      {found.length === 0 && !busy && !error && (
        <p class="empty">{jobs.length === 0 ? 'The history is empty.' : `No past job matches “${find}”.`}</p>
      )}
      {next !== null && (
        <p>
          <button type="button" onClick={() => void more()} disabled={busy}>
            Older jobs
          </button>
        </p>
      )}
    </>
  );
}

export function JobsView() {
  const { place, go } = useNavigation();
  const { history } = useAbilities();
  const past = history && place.view === 'history';
  const [ns, setNs] = useState(chosenNamespace());
  const choose = (event: Event) => {
    const given = (event.target as HTMLInputElement).value.trim();
    chooseNamespace(given);
    setNs(given);
  };
  const search = (event: Event) => go({ ...place, find: (event.target as HTMLInputElement).value }, { replace: true });
  return (
    <main tabIndex={-1}>
      <div class="toolbar">
        <h1>{past ? 'Past jobs' : 'Jobs'}</h1>
        {history && (
          <nav class="switch" aria-label="Which jobs">
            <Go to={{ find: place.find }} aria-current={past ? undefined : 'page'}>
              Live
            </Go>
            <Go to={{ view: 'history', find: place.find }} aria-current={past ? 'page' : undefined}>
              History
            </Go>
          </nav>
        )}
        <input
          type="search"
          placeholder="Find by name, state, label or who made it"
          aria-label="Find jobs"
          value={place.find}
          onInput={search}
        />
        <input
          type="text"
          class="short"
          placeholder="All namespaces"
          aria-label="Namespace"
          autocomplete="off"
          spellcheck={false}
          value={ns}
          onChange={choose}
        />
      </div>
      {past ? <Past key={ns} find={place.find} ns={ns} /> : <Live key={ns} find={place.find} ns={ns} />}
    </main>
  );
}

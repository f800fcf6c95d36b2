// SPDX-License-Identifier: Apache-2.0
// One job as it is now: its object by a stream, its curves and pods asked for as they change.
import { useCallback, useEffect, useRef, useState } from 'preact/hooks';

import { usePoll } from './parts';
import { ask, jobPath, type Link, listen, Refused, withQuery } from './rest';
import { deletedAt, isFinished, lastStepOf, type Life, mergeCurves, rememberPods } from './story';
import type { Curves, Job, Pod, Progress } from './types';

export interface Watched {
  job: Job | null;
  link: Link;
  gone: boolean; // it was there and has been deleted
  error: unknown;
  take(job: Job): void; // what a write has answered
}

const versionOf = (job: Job): number => Number(job.metadata.resourceVersion) || 0;

// Logs have a stream of their own, and a tab may have one: while they are shown the job is asked for
// instead (`polled`). A past job is named by its UID too, and does not change any more.
export function useJob(ns: string, name: string, uid: string, polled: boolean): Watched {
  const [job, setJob] = useState<Job | null>(null);
  const [link, setLink] = useState<Link>('opening');
  const [gone, setGone] = useState(uid !== '');
  const [error, setError] = useState<unknown>(null);
  const path = jobPath(ns, name);

  const take = useCallback((next: Job) => {
    setError(null);
    setJob((last) =>
      last && last.metadata.uid === next.metadata.uid && versionOf(last) > versionOf(next) ? last : next,
    );
  }, []);

  useEffect(() => {
    setJob(null);
    setGone(uid !== '');
    setError(null);
  }, [path, uid]);

  // No stream tells of a job that is past, though the history may still show it.
  const refused = useCallback((caught: unknown) => {
    if (caught instanceof Refused && caught.problem.status === 404) setGone(true);
    else setError(caught);
  }, []);

  useEffect(() => {
    ask<Job>(withQuery(path, { uid })).then(take, setError);
  }, [path, uid]);

  useEffect(() => {
    if (polled || uid) return undefined;
    return listen(`${path}?watch=1`, {
      link: setLink,
      refused: (problem) => refused(new Refused(problem)),
      on: ({ name: event, data }) => {
        if (event === 'deleted') setGone(true);
        if (event === 'added' || event === 'modified') {
          setGone(false);
          take((JSON.parse(data) as { object: Job }).object);
        }
        if (event !== 'progress') return;
        const { goodput, ...progress } = JSON.parse(data) as Progress & { goodput?: Record<string, number> };
        setJob(
          (last) => last && { ...last, status: { ...last.status, progress, goodput: goodput ?? last.status?.goodput } },
        );
      },
    });
  }, [path, uid, polled]);

  usePoll(
    polled && !gone
      ? async () => {
          try {
            const next = await ask<Job>(path);
            take(next);
            if (deletedAt(next)) setGone(true);
            setLink('live');
          } catch (caught) {
            if (caught instanceof Refused) refused(caught);
            else setLink('broken');
          }
        }
      : null,
    2000,
    [path, polled, gone],
  );

  return { job, link, gone, error, take };
}

// Asked for at most once a second, from the last known step on; from the beginning when training was
// set back.
export function useCurves(job: Job | null, past: string): Curves {
  const [curves, setCurves] = useState<Curves>({});
  const known = useRef<Curves>({});
  const asked = useRef({ uid: '', busy: false, again: false });
  const uid = job?.metadata.uid ?? '';
  const step = job?.status?.progress?.step ?? -1;
  const state = job?.status?.state ?? '';

  const read = async (of: Job) => {
    if (asked.current.busy) {
      asked.current.again = true;
      return;
    }
    asked.current.busy = true;
    try {
      const last = lastStepOf(known.current);
      const from = asked.current.uid === of.metadata.uid && step >= last ? last + 1 : 0;
      if (from === 0) known.current = {};
      asked.current.uid = of.metadata.uid;
      const path = withQuery(`${jobPath(of.metadata.namespace, of.metadata.name)}/metrics`, { from, uid: past });
      const { metrics } = await ask<{ metrics: Curves }>(path);
      known.current = mergeCurves(known.current, metrics);
      setCurves(known.current);
    } catch {
      // The next step asks again.
    }
    setTimeout(() => {
      asked.current.busy = false;
      if (asked.current.again) {
        asked.current.again = false;
        void read(of);
      }
    }, 900);
  };

  useEffect(() => {
    if (job) void read(job);
  }, [uid, step, state]);
  return curves;
}

export interface Pods {
  pods: Pod[];
  seen: Map<string, Life>;
}

export function usePods(job: Job | null, gone: boolean): Pods {
  const [known, setKnown] = useState<Pods>({ pods: [], seen: new Map() });
  const uid = job?.metadata.uid ?? '';
  const over = job ? isFinished(job) : false;
  const incidents = job?.status?.incidents?.length ?? 0;
  const state = job?.status?.state ?? '';
  useEffect(() => setKnown({ pods: [], seen: new Map() }), [uid]);
  usePoll(
    job && !gone
      ? async () => {
          const path = `${jobPath(job.metadata.namespace, job.metadata.name)}/pods`;
          const { items } = await ask<{ items: Pod[] }>(path);
          setKnown((last) => ({ pods: items, seen: rememberPods(last.seen, items, Date.now() / 1000) }));
        }
      : null,
    over ? 15000 : 2000,
    [uid, over, gone, incidents, state],
  );
  return known;
}

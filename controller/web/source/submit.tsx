// SPDX-License-Identifier: Apache-2.0
// A new job: its file, checked by the service as one types, in the words of `starling validate`.
import { useEffect, useRef, useState } from 'preact/hooks';

import { Go, Trouble } from './parts';
import { useNavigation } from './place';
import { ask, chosenNamespace, jobPath, Refused } from './rest';
import { yamlOf } from './tabs';
import type { Job } from './types';

const PAUSE_MS = 400; // after the last key before the service is asked

const EXAMPLE = `apiVersion: starling.dev/v1alpha1
kind: TrainingJob
metadata:
  name: first
spec:
  workload:
    classification:
      model:
        mlp: {hidden: [64]}
  dataset:
    # Made on the spot. Data of your own: csv: {uri: /absolute/path.csv, labelColumn: label, shape: [1, 8, 8]}
    train: {synthetic: {samples: 4096, shape: [1, 8, 8], classes: 10}}
    globalBatchSize: 64
  optimizer:
    sgd: {learningRate: 0.05, momentum: 0.9}
  stop: {epochs: 20}
  replicaSpecs:
    worker: {replicas: 2, minReplicas: 1, maxReplicas: 8}
  experiment: {stepDelay: 20ms}   # slowly, to watch it; take it away for speed
`;

type Verdict = { kind: 'none' } | { kind: 'asking' } | { kind: 'right' } | { kind: 'wrong'; error: unknown };

const isJson = (text: string) => text.trimStart().startsWith('{');

function create(ns: string, text: string, dryRun: boolean, signal?: AbortSignal): Promise<Job> {
  return ask<Job>(`/v1/namespaces/${encodeURIComponent(ns)}/jobs${dryRun ? '?dryRun=All' : ''}`, {
    method: 'POST',
    body: text,
    signal,
    type: isJson(text) ? 'application/json' : 'application/yaml',
  });
}

function useVerdict(ns: string, text: string): Verdict {
  const [verdict, setVerdict] = useState<Verdict>({ kind: 'none' });
  useEffect(() => {
    if (!text.trim() || !ns) return setVerdict({ kind: 'none' });
    const stop = new AbortController();
    setVerdict((last) => (last.kind === 'wrong' ? last : { kind: 'asking' }));
    const timer = setTimeout(() => {
      create(ns, text, true, stop.signal).then(
        () => setVerdict({ kind: 'right' }),
        (error: unknown) => !stop.signal.aborted && setVerdict({ kind: 'wrong', error }),
      );
    }, PAUSE_MS);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [ns, text]);
  return verdict;
}

// Of the job that is copied, with a name that is free most of the time.
async function textOf(job: string): Promise<string> {
  const [ns = '', name = ''] = job.split('/');
  const copied = await ask<Job>(jobPath(ns, name));
  const free = `${name.replace(/-\d+$/, '').slice(0, 34)}-${Math.floor(Math.random() * 9000) + 1000}`;
  return yamlOf({ ...copied, metadata: { ...copied.metadata, name: free } }, false);
}

function Said({ verdict }: { verdict: Verdict }) {
  if (verdict.kind === 'right')
    return (
      <p class="right" role="status">
        This job can be submitted.
      </p>
    );
  if (verdict.kind === 'asking')
    return (
      <p class="faint" role="status">
        Checking.
      </p>
    );
  if (verdict.kind === 'none')
    return (
      <p class="faint" role="status">
        It is checked as you type.
      </p>
    );
  const { error } = verdict;
  if (!(error instanceof Refused)) return <Trouble error={error} />;
  const { errors, detail, remedy } = error.problem;
  return (
    <div class="wrong" role="status">
      {errors && errors.length > 0 ? (
        <ul>
          {errors.map(({ path, detail: what }) => (
            <li key={path + what}>
              <code>{path}</code> {what}
            </li>
          ))}
        </ul>
      ) : (
        <p>
          {detail} {remedy}
        </p>
      )}
    </div>
  );
}

export function SubmitView() {
  const { place, go } = useNavigation();
  const [ns, setNs] = useState(place.job.split('/')[0] || chosenNamespace() || 'default');
  const [text, setText] = useState(place.job ? '' : EXAMPLE);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const file = useRef<HTMLInputElement>(null);
  const verdict = useVerdict(ns, text);

  useEffect(() => {
    if (place.job) textOf(place.job).then(setText, setError);
  }, [place.job]);

  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const job = await create(ns, text, false);
      go({ job: `${job.metadata.namespace}/${job.metadata.name}` });
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  const open = async () => {
    const chosen = file.current?.files?.[0];
    if (chosen) setText(await chosen.text());
  };
  return (
    <main tabIndex={-1}>
      <nav class="crumbs" aria-label="Back">
        <Go to={{}}>Jobs</Go>
      </nav>
      <h1>New job</h1>
      <form class="submit" onSubmit={(event) => void submit(event)}>
        <div class="toolbar">
          <label>
            Namespace{' '}
            <input
              value={ns}
              onInput={(event) => setNs(event.currentTarget.value.trim())}
              spellcheck={false}
              size={16}
              required
            />
          </label>
          <label class="button">
            Open a file
            <input class="unseen" type="file" accept=".yaml,.yml,.json" ref={file} onChange={() => void open()} />
          </label>
        </div>
        <label for="job-file">Job file, YAML or JSON</label>
        <textarea
          id="job-file"
          spellcheck={false}
          autocapitalize="off"
          rows={26}
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          aria-describedby="verdict"
        />
        <div id="verdict">
          <Said verdict={verdict} />
        </div>
        <Trouble error={error} />
        <div class="buttons">
          <button type="submit" class="primary" disabled={busy || verdict.kind !== 'right'}>
            Submit
          </button>
        </div>
      </form>
    </main>
  );
}

// SPDX-License-Identifier: Apache-2.0
// What one can do to a job: scale it, suspend it, let it go on, save it, delete it.
import { useEffect, useState } from 'preact/hooks';

import { formatNumber, words } from './format';
import { Dialog, Trouble } from './parts';
import { useNavigation } from './place';
import { ask, jobPath } from './rest';
import { useAbilities } from './session';
import { isFinished, isSuspended } from './story';
import type { Job } from './types';

interface Properties {
  job: Job;
  onChanged(job: Job): void;
  onSaid(text: string): void; // for people, in a line that screen readers read out
}

type Open = 'scale' | 'delete' | null;

const CHECKPOINT_REQUEST = 'starling.dev/checkpoint-requested-at';

const pathOf = (job: Job) => jobPath(job.metadata.namespace, job.metadata.name);
// A write is for the job that is shown, not for another of its name.
const sameJob = (job: Job) => `?uid=${encodeURIComponent(job.metadata.uid)}`;

export const scalable = (job: Job): string[] =>
  Object.keys(job.spec.replicaSpecs ?? {})
    .filter((role) => role !== 'coordinator')
    .sort()
    .reverse();

function Scale({ job, onDone, onClose }: { job: Job; onDone: (said: string) => void; onClose: () => void }) {
  const roles = scalable(job);
  const [wanted, setWanted] = useState<Record<string, number>>(
    Object.fromEntries(roles.map((role) => [role, job.spec.replicaSpecs?.[role]?.replicas ?? 1])),
  );
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const changed = roles.filter((role) => wanted[role] !== job.spec.replicaSpecs?.[role]?.replicas);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      for (const role of changed) {
        await ask(`${pathOf(job)}/scale`, { method: 'PUT', body: JSON.stringify({ role, replicas: wanted[role] }) });
      }
      onDone(changed.map((role) => `${words(role)}s: ${wanted[role]} wanted`).join(', ') || 'Nothing to change');
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Scale ${job.metadata.name}`} onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        {roles.map((role) => {
          const { minReplicas, maxReplicas } = job.spec.replicaSpecs?.[role] ?? {};
          const bounds = [
            minReplicas !== undefined && `at least ${minReplicas}`,
            maxReplicas !== undefined && `at most ${maxReplicas}`,
          ]
            .filter(Boolean)
            .join(', ');
          return (
            <p key={role}>
              <label for={`scale-${role}`}>{words(role)}s</label>
              <input
                id={`scale-${role}`}
                type="number"
                min={0}
                step={1}
                value={wanted[role]}
                required
                onInput={(event) => setWanted({ ...wanted, [role]: event.currentTarget.valueAsNumber })}
              />
              {bounds && <span class="faint"> {bounds}</span>}
            </p>
          );
        })}
        <p class="faint">Training goes on meanwhile; whoever joins copies the state from the others.</p>
        <Trouble error={error} />
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy || changed.length === 0}>
            Scale
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Delete({ job, onDone, onClose }: { job: Job; onDone: () => void; onClose: () => void }) {
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    try {
      await ask(pathOf(job) + sameJob(job), { method: 'DELETE' });
      onDone();
    } catch (caught) {
      setError(caught);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`Delete ${job.metadata.name}?`} onClose={onClose}>
      <p>
        Its pods end now, and what it has written goes with it: checkpoints, logs and the model, unless they lie at a{' '}
        <code>checkpoint.uri</code> of your own.
      </p>
      <Trouble error={error} />
      <div class="buttons">
        <button type="button" onClick={onClose} autofocus>
          Keep it
        </button>
        <button type="button" class="danger" onClick={() => void confirm()} disabled={busy}>
          Delete {job.metadata.name}
        </button>
      </div>
    </Dialog>
  );
}

export function Actions({ job, onChanged, onSaid }: Properties) {
  const { go } = useNavigation();
  const { checkpoint } = useAbilities();
  const [open, setOpen] = useState<Open>(null);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState('');
  const over = isFinished(job);
  const suspended = isSuspended(job);
  const name = job.metadata.name;
  const [awaited, setAwaited] = useState('');
  const written = job.status?.requestedCheckpoint;
  useEffect(() => {
    if (awaited === '' || written?.request !== awaited) return;
    setAwaited('');
    onSaid(`${name} has a checkpoint of step ${formatNumber(written.checkpoint?.step)}`);
  }, [awaited, written?.request]);
  const post = async (verb: string, said: string) => {
    setBusy(verb);
    setError(null);
    try {
      const changed = await ask<Job>(`${pathOf(job)}:${verb}${sameJob(job)}`, { method: 'POST' });
      onChanged(changed);
      onSaid(said);
      if (verb === 'checkpoint') setAwaited(changed.metadata.annotations?.[CHECKPOINT_REQUEST] ?? '');
    } catch (caught) {
      setError(caught);
    }
    setBusy('');
  };
  const scaled = (said: string) => {
    setOpen(null);
    onSaid(said);
    ask<Job>(pathOf(job)).then(onChanged, setError);
  };
  return (
    <div class="actions">
      {!over && (
        <button type="button" onClick={() => setOpen('scale')} disabled={scalable(job).length === 0}>
          Scale…
        </button>
      )}
      {!over && !suspended && (
        <button
          type="button"
          disabled={busy !== ''}
          onClick={() => void post('suspend', `${name} is being saved and suspended`)}
        >
          Suspend
        </button>
      )}
      {!over && suspended && (
        <button type="button" disabled={busy !== ''} onClick={() => void post('resume', `${name} goes on`)}>
          Resume
        </button>
      )}
      {!over && !suspended && checkpoint && (
        <button
          type="button"
          disabled={busy !== ''}
          onClick={() => void post('checkpoint', `A checkpoint of ${name} is on its way`)}
        >
          Checkpoint
        </button>
      )}
      <button type="button" onClick={() => go({ view: 'new', job: `${job.metadata.namespace}/${name}` })}>
        Copy…
      </button>
      <button type="button" class="danger" onClick={() => setOpen('delete')}>
        Delete…
      </button>
      <Trouble error={error} />
      {open === 'scale' && <Scale job={job} onDone={scaled} onClose={() => setOpen(null)} />}
      {open === 'delete' && (
        <Delete
          job={job}
          onClose={() => setOpen(null)}
          onDone={() => {
            setOpen(null);
            go({});
          }}
        />
      )}
    </div>
  );
}

// SPDX-License-Identifier: Apache-2.0
// Small pieces that several views share.
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

import { formatPercent } from './format';
import { type Place, useNavigation, writePlace } from './place';
import { Refused } from './rest';

// A link within the page: a real address, which needs no answer of the server.
export function Go({
  to,
  children,
  ...rest
}: {
  to: Partial<Place>;
  children: ComponentChildren;
  class?: string;
  'aria-current'?: 'page' | undefined;
  'aria-label'?: string;
}) {
  const { go } = useNavigation();
  const follow = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    go(to);
  };
  return (
    <a href={writePlace(to)} onClick={follow} {...rest}>
      {children}
    </a>
  );
}

const TONES: Record<string, string> = {
  Running: 'active',
  Succeeded: 'good',
  Failed: 'bad',
  Restarting: 'warn',
  Suspended: 'still',
  Pending: 'still',
  Deleting: 'still',
};

export function StateBadge({ state }: { state: string }) {
  return <span class={`badge ${TONES[state] ?? 'still'}`}>{state}</span>;
}

export function ProgressBar({ fraction, label }: { fraction: number | undefined; label: string }) {
  if (fraction === undefined) return null;
  return (
    <progress class="bar" max={1} value={fraction} aria-label={label}>
      {formatPercent(fraction)}
    </progress>
  );
}

// The current time, twice a second or as often as is asked, as long as somebody looks.
export function useNow(everyMs = 1000): number {
  const [now, setNow] = useState(Date.now() / 1000);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && setNow(Date.now() / 1000), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

// Asks again and again while somebody looks, and at once when `what` changes. A failure is tried again.
export function usePoll(what: (() => Promise<void>) | null, everyMs: number, changes: unknown[]): void {
  useEffect(() => {
    if (!what) return;
    let over = false;
    let busy = false;
    const turn = async () => {
      if (over || busy || document.hidden) return;
      busy = true;
      try {
        await what();
      } catch {
        // The next turn tries again; the stream beside it tells that the server is away.
      }
      busy = false;
    };
    void turn();
    const timer = setInterval(() => void turn(), everyMs);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, changes);
}

// What went wrong, in the service's own words.
export function Trouble({ error }: { error: unknown }) {
  if (!error) return null;
  const problem = error instanceof Refused ? error.problem : null;
  return (
    <div class="trouble" role="alert">
      <b>{problem ? problem.title || problem.code : 'The server cannot be reached'}</b>
      <p>{problem ? problem.detail : 'Is the control plane up? Run starling up, and open the link that it prints.'}</p>
      {problem?.errors && problem.errors.length > 0 && (
        <ul>
          {problem.errors.map(({ path, detail }) => (
            <li key={path + detail}>
              <code>{path}</code> {detail}
            </li>
          ))}
        </ul>
      )}
      {problem?.remedy && <p class="remedy">{problem.remedy}</p>}
    </div>
  );
}

// A dialog that keeps the keyboard within it until it is closed, which Escape does too.
export function Dialog({
  title,
  onClose,
  children,
}: {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const place = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const dialog = place.current;
    dialog?.showModal();
    // Closed while it still is there, it gives the keyboard back to the button that opened it.
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={place} aria-label={title} onClose={onClose}>
      <h2>{title}</h2>
      {children}
    </dialog>
  );
}

export interface TabName {
  id: string;
  label: string;
}

// Arrow keys move between tabs, as the pattern for them asks.
export function Tabs({
  tabs,
  current,
  onChoose,
  children,
}: {
  tabs: TabName[];
  current: string;
  onChoose: (id: string) => void;
  children: ComponentChildren;
}) {
  const strip = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === current);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    if (!next) return;
    onChoose(next.id);
    strip.current?.querySelector<HTMLButtonElement>(`#tab-${next.id}`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label="Details" ref={strip} onKeyDown={move}>
        {tabs.map(({ id, label }) => (
          <button
            key={id}
            id={`tab-${id}`}
            type="button"
            role="tab"
            aria-selected={id === current}
            aria-controls="tabpanel"
            tabIndex={id === current ? 0 : -1}
            onClick={() => onChoose(id)}
          >
            {label}
          </button>
        ))}
      </div>
      <div id="tabpanel" class="tabpanel" role="tabpanel" aria-labelledby={`tab-${current}`} tabIndex={0}>
        {children}
      </div>
    </>
  );
}

// SPDX-License-Identifier: Apache-2.0
// The door to the REST service: requests with the caller's token, refusals in the service's own words,
// and streams that come back when they break.
import { EventParser, type StreamEvent } from './events';
import type { Problem } from './types';

const TOKEN = 'starling.token';

// Whoever opens the link of `starling up` brings the token in the part of the address that browsers
// do not send. It leaves the address at once and stays in this tab alone.
export function takeTokenFromAddress(): void {
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (!given) return;
  sessionStorage.setItem(TOKEN, given);
  history.replaceState(null, '', location.pathname + location.search);
}

export const token = (): string => sessionStorage.getItem(TOKEN) ?? '';
export function setToken(value: string): void {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

// Whose jobs are listed, of those who may not list all; empty: of all namespaces.
const NAMESPACE = 'starling.namespace';
export const chosenNamespace = (): string => sessionStorage.getItem(NAMESPACE) ?? '';
export function chooseNamespace(value: string): void {
  if (value) sessionStorage.setItem(NAMESPACE, value);
  else sessionStorage.removeItem(NAMESPACE);
}
export const jobsPath = (ns: string): string => (ns ? `/v1/namespaces/${encodeURIComponent(ns)}/jobs` : '/v1/jobs');

export class Refused extends Error {
  constructor(readonly problem: Problem) {
    super(problem.detail || problem.title);
  }
}

// Called when the service no longer knows the token.
let signedOut: () => void = () => {};
export function onSignedOut(what: () => void): void {
  signedOut = what;
}

export interface Question {
  method?: string;
  body?: string;
  type?: string; // of the body
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

async function send(path: string, question: Question): Promise<Response> {
  const headers: Record<string, string> = { Authorization: `Bearer ${token()}`, ...question.headers };
  if (question.body !== undefined) headers['Content-Type'] = question.type ?? 'application/json';
  const answer = await fetch(path, {
    method: question.method ?? 'GET',
    headers,
    body: question.body,
    signal: question.signal,
    cache: 'no-store',
    credentials: 'omit',
  });
  if (answer.ok) return answer;
  const problem = await problemOf(answer);
  if (answer.status === 401) signedOut();
  throw new Refused(problem);
}

async function problemOf(answer: Response): Promise<Problem> {
  const otherwise = {
    title: answer.statusText,
    status: answer.status,
    code: 'Unknown',
    detail: `the server answered ${answer.status}`,
  };
  try {
    return { ...otherwise, ...((await answer.json()) as Partial<Problem>) };
  } catch {
    return otherwise;
  }
}

export async function ask<T>(path: string, question: Question = {}): Promise<T> {
  const answer = await send(path, question);
  return (await answer.json()) as T;
}

export const jobPath = (ns: string, name: string): string =>
  `/v1/namespaces/${encodeURIComponent(ns)}/jobs/${encodeURIComponent(name)}`;

// `path` with a query of all values that are not empty.
export function withQuery(path: string, values: Record<string, string | number>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== '') query.set(name, String(value));
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

export type Link = 'opening' | 'live' | 'broken';

export interface Listener {
  on(event: StreamEvent): void;
  link(state: Link): void;
  refused?(problem: Problem): void;
}

const SILENCE_MS = 40_000; // the service says something each 15 s: longer, and nobody is there

// Reads a stream until it ends well, and opens it again from where it broke. It is closed while nobody
// looks at the page: a browser has six connections to one server for all its tabs.
export function listen(path: string, listener: Listener): () => void {
  const parser = { current: new EventParser() };
  let controller = new AbortController();
  let over = false;

  const wait = (ms: number) => new Promise((done) => setTimeout(done, ms));
  const visible = () =>
    document.hidden
      ? new Promise<void>((done) => document.addEventListener('visibilitychange', () => done(), { once: true }))
      : Promise.resolve();

  async function once(): Promise<void> {
    const headers: Record<string, string> = { Accept: 'text/event-stream' };
    if (parser.current.lastId) headers['Last-Event-ID'] = parser.current.lastId;
    const next = new EventParser();
    next.lastId = parser.current.lastId;
    next.retryMs = parser.current.retryMs;
    parser.current = next;
    const answer = await send(path, { headers, signal: controller.signal });
    if (!answer.body) throw new Error('no body');
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    listener.link('live');
    for (;;) {
      const silent = setTimeout(() => controller.abort(), SILENCE_MS);
      const piece = await reader.read().finally(() => clearTimeout(silent));
      if (piece.done) return;
      for (const event of next.feed(piece.value)) {
        listener.on(event);
        if (event.name === 'end') over ||= endsForGood(event);
      }
    }
  }

  async function run(): Promise<void> {
    while (!over) {
      await visible();
      if (over) return;
      controller = new AbortController();
      try {
        await once();
      } catch (error) {
        if (over) return;
        if (error instanceof Refused && error.problem.status !== 503 && error.problem.status !== 429) {
          listener.refused?.(error.problem);
          return;
        }
      }
      if (over) return;
      if (!document.hidden) {
        listener.link('broken');
        await wait(parser.current.retryMs);
      }
    }
  }

  const hide = () => document.hidden && controller.abort();
  document.addEventListener('visibilitychange', hide);
  listener.link('opening');
  void run();
  return () => {
    over = true;
    controller.abort();
    document.removeEventListener('visibilitychange', hide);
  };
}

function endsForGood(event: StreamEvent): boolean {
  try {
    const reason = (JSON.parse(event.data) as { reason?: string }).reason;
    return reason === 'JobFinished' || reason === 'Complete';
  } catch {
    return false;
  }
}

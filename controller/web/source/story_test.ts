// SPDX-License-Identifier: Apache-2.0
import assert from 'node:assert/strict';
import { test } from 'node:test';

import { EventParser } from './events';
import { formatClock, formatNumber, formatSeconds, parseDuration } from './format';
import { readPlace, writePlace } from './place';
import {
  beginOfCurves,
  explain,
  fractionOf,
  livesOf,
  mergeCurves,
  panelOf,
  rememberPods,
  sharesOf,
  stateOf,
} from './story';
import type { Job, JobStatus, Pod } from './types';

const START = '2026-11-22T12:00:00Z';
const START_SECONDS = Date.parse(START) / 1000;

function job(status: JobStatus = {}): Job {
  return {
    apiVersion: 'starling.dev/v1alpha1',
    kind: 'TrainingJob',
    metadata: { name: 'digits', namespace: 'default', uid: 'u', resourceVersion: '1', creationTimestamp: START },
    spec: {},
    status: { startTime: START, ...status },
  };
}

function pod(name: string, uid: string, after: number): Pod {
  return {
    metadata: { name, uid, creationTimestamp: START, labels: { 'starling.dev/role': 'worker' } },
    status: { phase: 'Running', startTime: new Date((START_SECONDS + after) * 1000).toISOString() },
  };
}

const condition = (type: string, message: string) => ({ type, status: 'True', message });
const texts = (of: Job) => explain(of).map((finding) => finding.text);

test('events come whole however the bytes are cut', () => {
  const text =
    ': hb\n\nretry: 1500\n\nid: 7\nevent: added\ndata: {"a":1}\n\nevent: progress\r\ndata: x\r\ndata: y\r\n\r\n';
  for (let size = 1; size <= text.length; size += 1) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < text.length; at += size) events.push(...parser.feed(text.slice(at, at + size)));
    assert.deepEqual(events, [
      { name: 'added', data: '{"a":1}', id: '7' },
      { name: 'progress', data: 'x\ny', id: '7' },
    ]);
    assert.equal(parser.retryMs, 1500);
  }
});

test('an event without data is none', () => {
  assert.deepEqual(new EventParser().feed('event: added\n\n'), []);
});

test('seconds are summed by activity, workers and servers apart, ours in their order', () => {
  const goodput = {
    idle: 1,
    compute: 6,
    exchange: 3,
    'server/idle': 9,
    mystery: 0,
    'server/apply': 1,
    rest: Number.NaN,
  };
  assert.deepEqual(
    sharesOf(goodput).map(({ name, share }) => [name, share]),
    [
      ['compute', 0.6],
      ['exchange', 0.3],
      ['idle', 0.1],
    ],
  );
  assert.deepEqual(
    sharesOf(goodput, 'server').map(({ name, seconds }) => [name, seconds]),
    [
      ['idle', 9],
      ['apply', 1],
    ],
  );
  assert.deepEqual(sharesOf(undefined), []);
});

test('why a job is slow is told with its share, the largest first', () => {
  const said = texts(
    job({
      conditions: [condition('Running', 'workers train')],
      goodput: { compute: 40, exchange: 30, waiting: 20, input: 10 },
    }),
  );
  assert.equal(said.length, 2);
  assert.match(said[0] ?? '', /^30 % .* exchanging/);
  assert.match(said[1] ?? '', /^20 % .* slower workers/);
});

test('a job that computes is told to be well', () => {
  assert.match(
    texts(job({ conditions: [condition('Running', '')], goodput: { compute: 95, exchange: 5 } }))[0] ?? '',
    /^95 % .* computing/,
  );
});

test('what has gone wrong comes before what is slow', () => {
  const found = explain(
    job({
      conditions: [condition('Degraded', 'no node has room'), condition('Running', '')],
      goodput: { compute: 1, idle: 1 },
    }),
  );
  assert.deepEqual(found[0], { tone: 'bad', text: 'No node has room' });
  assert.match(found[1]?.text ?? '', /idle/);
});

test('a job without a status is told to wait', () => {
  const bare = job();
  delete bare.status;
  assert.deepEqual(texts(bare), ['The controller has not begun with it yet.']);
  assert.equal(fractionOf(bare), undefined);
});

test('what incidents cost is summed', () => {
  const incidents = [{ detectionSeconds: 0.5, recoverySeconds: 1.5, repeatedSteps: 1 }, { recoverySeconds: 2 }];
  assert.ok(texts(job({ incidents })).includes('2 incidents cost 4.0 s in all; 1 step was computed again.'));
});

test('losses that were mended together have cost their steps and seconds once', () => {
  const at = (seconds: number) => new Date((START_SECONDS + seconds) * 1000).toISOString();
  const together = [
    { reason: 'WorkerLost', time: at(10), detectionSeconds: 0, recoverySeconds: 4, repeatedSteps: 6 },
    { reason: 'WorkerLost', time: at(10), detectionSeconds: 0, recoverySeconds: 4, repeatedSteps: 6 },
    { reason: 'StepsLost', time: at(14), recoverySeconds: 0, repeatedSteps: 6 },
  ];
  assert.ok(
    texts(job({ incidents: together })).includes('3 incidents cost 4.0 s in all; 6 steps were computed again.'),
  );
  const later = { reason: 'WorkerLost', time: at(60), detectionSeconds: 0, recoverySeconds: 2, repeatedSteps: 1 };
  assert.ok(
    texts(job({ incidents: [later, ...together] })).includes(
      '4 incidents cost 6.0 s in all; 7 steps were computed again.',
    ),
  );
});

test('newer points follow the known ones, and replace those of steps that were taken back', () => {
  const known = {
    loss: [
      [1, 0, 9],
      [5, 1, 8],
      [9, 2, 7],
    ] as [number, number, number][],
  };
  assert.deepEqual(mergeCurves(known, { loss: [[6, 3, 5]] })['loss'], [
    [1, 0, 9],
    [5, 1, 8],
    [6, 3, 5],
  ]);
  assert.deepEqual(mergeCurves(known, { loss: [], accuracy: [[9, 2, 1]] }), { ...known, accuracy: [[9, 2, 1]] });
});

test('the curves of a job that has ended end when it did', () => {
  const ended = job({ completionTime: '2026-11-22T12:01:00Z' });
  assert.equal(beginOfCurves(ended, { loss: [[9, 50, 1]] }, START_SECONDS + 4000), START_SECONDS + 10);
  assert.equal(beginOfCurves(job(), { loss: [[9, 50, 1]] }, START_SECONDS + 60), START_SECONDS + 10);
  assert.equal(beginOfCurves(job(), {}, 0), undefined);
  const past = job();
  past.metadata.annotations = { 'starling.dev/deleted-at': '2026-11-22T12:01:00Z' };
  assert.equal(beginOfCurves(past, { loss: [[9, 50, 1]] }, START_SECONDS + 4000), START_SECONDS + 10);
});

test('a pod that is gone has ended, and its successor is another life of the same name', () => {
  let seen = rememberPods(
    new Map(),
    [pod('digits-worker-0', 'a', 0), pod('digits-worker-10', 'c', 0), pod('digits-worker-2', 'd', 0)],
    START_SECONDS,
  );
  seen = rememberPods(seen, [pod('digits-worker-0', 'b', 31)], START_SECONDS + 32);
  const incident = { pod: 'digits-worker-0', podUid: 'a', time: '2026-11-22T12:00:31Z' };
  const lives = livesOf(job({ incidents: [incident] }), seen);
  assert.deepEqual([...lives.keys()], ['digits-worker-0', 'digits-worker-2', 'digits-worker-10']);
  const [first, second] = lives.get('digits-worker-0') ?? [];
  assert.deepEqual([first?.to, first?.failed], [START_SECONDS + 31, true]);
  assert.deepEqual([second?.from, second?.to], [START_SECONDS + 31, undefined]);
});

test('lives that ended before anybody looked are known by their incidents', () => {
  const incidents = [
    { pod: 'w', podUid: 'a', time: '2026-11-22T12:00:10Z' },
    { pod: 'w', podUid: 'b', time: '2026-11-22T12:00:30Z' },
  ];
  const lives = livesOf(job({ incidents }), new Map()).get('w') ?? [];
  assert.deepEqual(
    lives.map(({ from, to }) => [from - START_SECONDS, (to ?? 0) - START_SECONDS]),
    [
      [0, 10],
      [10, 30],
    ],
  );
});

test('a job that was deleted on its way does not run', () => {
  const states = ['Running', 'Succeeded', 'Failed', undefined];
  assert.deepEqual(
    states.map((state) => stateOf(state, true)),
    ['Deleted', 'Succeeded', 'Failed', 'Deleted'],
  );
  assert.deepEqual(
    states.map((state) => stateOf(state, false)),
    ['Running', 'Succeeded', 'Failed', 'Pending'],
  );
});

test('numbers and times read well', () => {
  assert.deepEqual(
    [0, 0.00001234, 0.123456, 12345.6, 7, undefined, Number.NaN].map((value) => formatNumber(value)),
    ['0', '1.23e-5', '0.1235', '12,346', '7', '–', '–'],
  );
  assert.deepEqual(
    [0.000004, 0.054, 3.21, 59.6, 75, 3600, 90061, -1].map((value) => formatSeconds(value)),
    ['4 µs', '54 ms', '3.2 s', '1m', '1m 15s', '1h', '1d 1h', '0 µs'],
  );
  assert.deepEqual([0, 65, 3720].map(formatClock), ['0:00', '1:05', '1:02:00']);
  assert.deepEqual(['1h30m', '9.5s', '250ms', '', 'soon', '5'].map(parseDuration), [
    5400,
    9.5,
    0.25,
    undefined,
    undefined,
    undefined,
  ]);
});

test('a place survives its address', () => {
  const place = { job: 'default/digits', uid: 'a-b', tab: 'logs', view: '', find: 'a b&c', pod: 'digits-worker-0' };
  assert.equal(writePlace({ job: 'default/digits' }), '/?job=default/digits');
  assert.deepEqual(readPlace(writePlace(place).slice(1)), place);
  assert.equal(writePlace({}), '/');
});

test('each metric has its chart, and bytes of the exchange have none', () => {
  const metrics = ['loss', 'validation/loss', 'samplesPerSecond', 'validation/accuracy', 'exchange/sentBytes'];
  assert.deepEqual(metrics.map(panelOf), ['loss', 'loss', 'speed', 'quality', 'none']);
});

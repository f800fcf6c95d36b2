// SPDX-License-Identifier: Apache-2.0
// What the job's pods write, as they write it.
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

import { readable } from './incidents';
import { Trouble } from './parts';
import { useNavigation } from './place';
import { jobPath, type Link, listen, Refused, withQuery } from './rest';

interface Line {
  pod: string;
  line: string;
}

const MOST = 2000; // lines that are kept
const TAIL = 300; // lines of each pod to begin with

interface Properties {
  ns: string;
  name: string;
  pods: string[];
}

function useLines(
  ns: string,
  name: string,
  uid: string,
  pod: string,
): { lines: Line[]; link: Link; ended: boolean; error: unknown } {
  const [lines, setLines] = useState<Line[]>([]);
  const [link, setLink] = useState<Link>('opening');
  const [ended, setEnded] = useState(false);
  const [error, setError] = useState<unknown>(null);
  useEffect(() => {
    let kept: Line[] = [];
    let scheduled = 0;
    setLines([]);
    setEnded(false);
    setError(null);
    const show = () => {
      scheduled ||= window.setTimeout(() => {
        scheduled = 0;
        kept = kept.slice(-MOST);
        setLines([...kept]);
      }, 200);
    };
    const path = withQuery(`${jobPath(ns, name)}/logs`, { follow: 'true', tail: TAIL, pod, uid });
    const close = listen(path, {
      link: (state) => {
        setLink(state);
        // A log has no place from which it could go on: it is told from its tail again.
        if (state === 'live') kept = [];
      },
      refused: (problem) => setError(new Refused(problem)),
      on: ({ name: event, data }) => {
        if (event === 'end') setEnded(true);
        if (event !== 'log') return;
        kept.push(JSON.parse(data) as Line);
        show();
      },
    });
    return () => {
      close();
      clearTimeout(scheduled);
    };
  }, [ns, name, uid, pod]);
  return { lines, link, ended, error };
}

export function Logs({ ns, name, pods }: Properties) {
  const { place, go } = useNavigation();
  const { lines, link, ended, error } = useLines(ns, name, place.uid, place.pod);
  const [find, setFind] = useState('');
  const [following, setFollowing] = useState(true);
  const box = useRef<HTMLDivElement>(null);
  const shown = find
    ? lines.filter(({ line, pod }) => `${pod} ${line}`.toLowerCase().includes(find.toLowerCase()))
    : lines;

  useLayoutEffect(() => {
    if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, following]);
  const scrolled = () => {
    const element = box.current;
    if (element) setFollowing(element.scrollHeight - element.scrollTop - element.clientHeight < 40);
  };
  const names = place.pod && !pods.includes(place.pod) ? [place.pod, ...pods] : pods;
  const status = ended
    ? 'The job has ended.'
    : link === 'live'
      ? 'Following.'
      : link === 'broken'
        ? 'The connection broke; trying again.'
        : 'Opening.';
  return (
    <div class="logs">
      <div class="toolbar">
        <label>
          Pod{' '}
          <select
            value={place.pod}
            onChange={(event) => go({ ...place, pod: event.currentTarget.value }, { replace: true })}
          >
            <option value="">all pods</option>
            {names.map((pod) => (
              <option key={pod} value={pod}>
                {pod}
              </option>
            ))}
          </select>
        </label>
        <input
          type="search"
          placeholder="Find in the lines"
          aria-label="Find in the log"
          value={find}
          onInput={(event) => setFind(event.currentTarget.value)}
        />
        <span class="faint" role="status">
          {status}
          {!following && ' Scrolled back: new lines come below.'}
        </span>
      </div>
      <Trouble error={error} />
      <div class="lines" role="log" aria-live="off" aria-label="Log lines" tabIndex={0} ref={box} onScroll={scrolled}>
        {shown.map(({ pod, line }, i) => (
          <div key={i} class={/"level":"(warning|error|critical)"/.test(line) ? 'line loud' : 'line'}>
            {!place.pod && <span class="pod">{pod.startsWith(`${name}-`) ? pod.slice(name.length + 1) : pod} </span>}
            {readable(line)}
          </div>
        ))}
        {shown.length === 0 && <p class="faint">{find ? 'No line matches.' : 'No line yet.'}</p>}
      </div>
      <p class="faint">
        The newest {MOST.toLocaleString('en')} lines are kept here, {TAIL} of each pod to begin with.
      </p>
    </div>
  );
}

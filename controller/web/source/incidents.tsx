// SPDX-License-Identifier: Apache-2.0
// What failed, why, what was done and what it cost, with the last lines of the log as evidence.
import { formatDate, formatSeconds, formatTime, words } from './format';
import type { Incident } from './types';

// Starling's own processes write a JSON object a line; others are shown as they are.
export function readable(line: string): string {
  try {
    const { ts, level, logger, msg, ...fields } = JSON.parse(line) as Record<string, unknown>;
    if (typeof msg !== 'string') return line;
    const rest = Object.entries(fields).map(
      ([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
    );
    const time = typeof ts === 'string' ? ts.slice(11, 23) : '';
    return [
      time,
      String(level ?? '')
        .toUpperCase()
        .padEnd(5),
      String(logger ?? ''),
      msg,
      ...rest,
    ]
      .filter(Boolean)
      .join(' ');
  } catch {
    return line;
  }
}

function causeOf(incident: Incident): string {
  if (incident.signal) return `signal ${incident.signal}`;
  if (incident.exitCode !== undefined) return `exit code ${incident.exitCode}`;
  return '';
}

function One({ incident }: { incident: Incident }) {
  const cause = causeOf(incident);
  const lines = (incident.logTail ?? '').split('\n').filter(Boolean);
  return (
    <li class="incident">
      <header>
        <b>{words(incident.reason ?? 'Incident')}</b>
        {incident.pod && <code>{incident.pod}</code>}
        <time dateTime={incident.time} title={formatDate(incident.time)}>
          {formatTime(incident.time)}
        </time>
      </header>
      {incident.message && <p>{incident.message}</p>}
      <dl class="facts">
        {cause && (
          <div>
            <dt>Ended by</dt>
            <dd>{cause}</dd>
          </div>
        )}
        {incident.detectionSeconds !== undefined && (
          <div>
            <dt>Noticed after</dt>
            <dd>{formatSeconds(incident.detectionSeconds)}</dd>
          </div>
        )}
        {incident.recoverySeconds !== undefined && (
          <div>
            <dt>Training went on after</dt>
            <dd>{formatSeconds(incident.recoverySeconds)}</dd>
          </div>
        )}
        {incident.repeatedSteps !== undefined && (
          <div>
            <dt>Steps computed again</dt>
            <dd>{incident.repeatedSteps}</dd>
          </div>
        )}
      </dl>
      {lines.length > 0 && (
        <details>
          <summary>Last lines of its log</summary>
          <pre tabIndex={0}>{lines.map(readable).join('\n')}</pre>
        </details>
      )}
    </li>
  );
}

export function Incidents({ incidents }: { incidents: Incident[] }) {
  if (incidents.length === 0) return <p class="empty">Nothing has failed.</p>;
  const newest = [...incidents].sort((a, b) => (b.time ?? '').localeCompare(a.time ?? ''));
  return (
    <>
      <ul class="incidents">
        {newest.map((incident, i) => (
          <One key={`${incident.time}${incident.pod}${i}`} incident={incident} />
        ))}
      </ul>
      {incidents.length >= 20 && <p class="faint">A job keeps its newest 20 incidents.</p>}
    </>
  );
}

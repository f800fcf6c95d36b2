// SPDX-License-Identifier: Apache-2.0
// Numbers and times for people.

export function formatNumber(value: number | undefined, digits = 4): string {
  if (value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0';
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return value.toLocaleString('en');
  if (size >= 1000) return Math.round(value).toLocaleString('en');
  if (size < 1e-4) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

export function formatPercent(share: number): string {
  const percent = share * 100;
  if (percent > 0 && percent < 1) return '<1 %';
  return `${Math.round(percent)} %`;
}

// 75 becomes 1m 15s.
export function formatSeconds(seconds: number | undefined): string {
  if (seconds === undefined || !Number.isFinite(seconds)) return '–';
  if (seconds < 0) seconds = 0;
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1e3).toFixed(0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  const parts: [number, string][] = [
    [Math.floor(whole / 86400), 'd'],
    [Math.floor(whole / 3600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'm'],
    [whole % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count}${unit}`)
    .join(' ');
}

// Along an axis: 0:05, 12:30, 1:02:00.
export function formatClock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const two = (value: number) => String(value).padStart(2, '0');
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor(whole / 60) % 60;
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

// Go's durations, as the service writes them: 1h30m, 9.161946126s, 250ms.
export function parseDuration(text: string | undefined): number | undefined {
  if (!text) return undefined;
  const units: Record<string, number> = { h: 3600, m: 60, s: 1, ms: 1e-3, us: 1e-6, µs: 1e-6, ns: 1e-9 };
  let seconds = 0;
  let rest = text;
  while (rest) {
    const part = /^(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)/.exec(rest);
    if (!part) return undefined;
    seconds += Number(part[1]) * (units[part[2] ?? 's'] ?? 1);
    rest = rest.slice(part[0].length);
  }
  return seconds;
}

// Seconds since 1970; nothing: there is no such time.
export function timeOf(text: string | undefined): number | undefined {
  if (!text) return undefined;
  const ms = Date.parse(text);
  return Number.isNaN(ms) ? undefined : ms / 1000;
}

export function formatAge(text: string | undefined, now: number): string {
  const time = timeOf(text);
  return time === undefined ? '–' : formatSeconds(Math.max(0, Math.round(now - time)));
}

export function formatTime(text: string | undefined): string {
  const time = timeOf(text);
  return time === undefined ? '–' : new Date(time * 1000).toLocaleTimeString('en-GB');
}

export function formatDate(text: string | undefined): string {
  const time = timeOf(text);
  if (time === undefined) return '–';
  return new Date(time * 1000).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
}

export const sentence = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

// WorkerFailed becomes "Worker failed".
export const words = (name: string): string => sentence(name.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase());

// SPDX-License-Identifier: Apache-2.0
// Light or dark: as the system says, unless the person has chosen.
import { useEffect, useState } from 'preact/hooks';

export type Choice = 'system' | 'light' | 'dark';

const KEY = 'starling.theme';
const system = window.matchMedia('(prefers-color-scheme: dark)');

export function chosen(): Choice {
  const kept = localStorage.getItem(KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

export function choose(choice: Choice): void {
  if (choice === 'system') localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, choice);
  apply();
}

const listeners = new Set<() => void>();

export function apply(): void {
  const choice = chosen();
  document.documentElement.dataset['theme'] = choice;
  for (const listener of listeners) listener();
}

const isDark = () => chosen() === 'dark' || (chosen() === 'system' && system.matches);

// Charts are drawn on a canvas, which knows nothing of style sheets.
export interface Palette {
  text: string;
  faint: string;
  line: string;
  surface: string;
  bad: string;
  series: string[];
}

const LIGHT: Palette = {
  text: '#1c2430',
  faint: '#5b6675',
  line: '#e3e7ed',
  surface: '#ffffff',
  bad: '#c4321f',
  series: ['#2a63d6', '#c26a00', '#0f8a5f', '#8a3fc4', '#b83280', '#4a7a8c'],
};
const DARK: Palette = {
  text: '#e6ebf2',
  faint: '#98a4b5',
  line: '#2b3542',
  surface: '#171e28',
  bad: '#ff8a73',
  series: ['#74a5ff', '#f0ac4e', '#4fcf9d', '#c69bf5', '#f18cc4', '#8cc4d6'],
};

export function usePalette(): Palette {
  const [dark, setDark] = useState(isDark());
  useEffect(() => {
    const update = () => setDark(isDark());
    listeners.add(update);
    system.addEventListener('change', update);
    return () => {
      listeners.delete(update);
      system.removeEventListener('change', update);
    };
  }, []);
  return dark ? DARK : LIGHT;
}

// Of the ledger's activities: what is useful in cool colours, what is lost in warm and grey ones.
const ACTIVITY_COLORS: Record<string, [string, string]> = {
  compute: ['#2a63d6', '#5b8def'],
  optimizer: ['#1897c7', '#4fb8e0'],
  input: ['#0f8a5f', '#3dba8b'],
  exchange: ['#c98a00', '#e5ab3a'],
  waiting: ['#d2622a', '#ee8a55'],
  checkpoint: ['#8a3fc4', '#b083ea'],
  starting: ['#7d8b9b', '#8f9dae'],
  joining: ['#a3afbc', '#6d7b8c'],
  queueing: ['#bcc5cf', '#55626f'],
  recovery: ['#c4321f', '#f0705a'],
  repeated: ['#b83280', '#e46fb0'],
  idle: ['#d8dee5', '#3c4857'],
};

export function activityColor(name: string, palette: Palette): string {
  const colors = ACTIVITY_COLORS[name] ?? ['#4a7a8c', '#8cc4d6'];
  return colors[palette === DARK ? 1 : 0];
}

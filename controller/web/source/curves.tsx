// SPDX-License-Identifier: Apache-2.0
// A job's curves on one time axis, with its incidents as lines.
import { useMemo } from 'preact/hooks';

import { Chart } from './chart';
import { formatClock, formatNumber, timeOf, words } from './format';
import { panelOf } from './story';
import { type Palette, usePalette } from './theme';
import type { Curves, Incident, Point } from './types';

const PANELS = [
  { id: 'loss', title: 'Loss' },
  { id: 'quality', title: 'Metrics' },
  { id: 'speed', title: 'Samples a second' },
] as const;

const NAMES: Record<string, string> = {
  loss: 'training',
  'validation/loss': 'validation',
  samplesPerSecond: 'all workers',
};
export const nameOf = (metric: string): string => NAMES[metric] ?? metric;

interface Properties {
  curves: Curves;
  incidents: Incident[];
  began: number | undefined; // the axis's zero, in seconds since 1970
}

// Validation is measured once an epoch and told with every step since: what repeats is no news.
function changes(points: Point[]): Point[] {
  return points.filter((point, i) => i === 0 || i === points.length - 1 || point[2] !== points[i - 1]?.[2]);
}

const SHORTEST = 10; // seconds that the axis shows at least
const STEEP = 50; // times the smallest value; from there on an even axis hides the end of a curve

export function isSteep(metrics: [string, Point[]][]): boolean {
  const values = metrics.flatMap(([, points]) => points.map((point) => point[2]));
  const least = values.reduce((a, b) => Math.min(a, b), Infinity);
  return least > 0 && values.reduce((a, b) => Math.max(a, b), 0) / least > STEEP;
}

function describe(title: string, metrics: [string, Point[]][]): string {
  const parts = metrics.map(([name, points]) => {
    const first = points[0],
      last = points[points.length - 1];
    if (!first || !last) return '';
    return `${nameOf(name)} from ${formatNumber(first[2])} at step ${first[0]} to ${formatNumber(last[2])} at step ${last[0]}`;
  });
  return `${title}: ${parts.join('; ')}. The tab Table has the numbers.`;
}

function optionOf(
  metrics: [string, Point[]][],
  steep: boolean,
  lines: { xAxis: number; name: string }[],
  palette: Palette,
) {
  const axis = {
    axisLine: { lineStyle: { color: palette.line } },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: palette.line } },
  };
  const text = { color: palette.faint, fontSize: 11, hideOverlap: true };
  return {
    color: palette.series,
    grid: { left: 8, right: 14, top: 14, bottom: 4, containLabel: true },
    tooltip: {
      trigger: 'axis',
      renderMode: 'richText',
      confine: true,
      backgroundColor: palette.surface,
      borderColor: palette.line,
      textStyle: { color: palette.text, fontSize: 12 },
      formatter: (items: { seriesName: string; value: [number, number, number]; marker: string }[]) => {
        const first = items[0];
        if (!first) return '';
        const rows = items.map((item) => `${item.seriesName}  ${formatNumber(item.value[1])}`);
        return [`${formatClock(first.value[0])}  step ${first.value[2].toLocaleString('en')}`, ...rows].join('\n');
      },
    },
    xAxis: {
      type: 'value',
      min: 0,
      max: ({ max }: { max: number }) => Math.max(SHORTEST, max),
      ...axis,
      splitLine: { show: false },
      axisLabel: { ...text, formatter: formatClock, showMaxLabel: false },
      axisPointer: { label: { show: false }, lineStyle: { color: palette.faint } },
    },
    yAxis: {
      type: steep ? 'log' : 'value',
      scale: true,
      ...axis,
      splitNumber: 3,
      axisLabel: { ...text, formatter: (value: number) => formatNumber(value, 3) },
    },
    series: metrics.map(([name, points], i) => ({
      type: 'line',
      name: nameOf(name),
      sampling: 'lttb',
      showSymbol: points.length < 2,
      symbolSize: 5,
      lineStyle: { width: 2 },
      data: (name.startsWith('validation/') ? changes(points) : points).map(([step, seconds, value]) => [
        seconds,
        value,
        step,
      ]),
      markLine:
        i > 0 || lines.length === 0
          ? undefined
          : {
              symbol: 'none',
              silent: true,
              label: { show: false },
              lineStyle: { color: palette.bad, type: 'dashed', width: 1 },
              data: lines,
            },
    })),
  };
}

function Panel({
  id,
  title,
  metrics,
  lines,
}: {
  id: string;
  title: string;
  metrics: [string, Point[]][];
  lines: { xAxis: number; name: string }[];
}) {
  const palette = usePalette();
  const steep = id === 'loss' && isSteep(metrics);
  const option = useMemo(() => optionOf(metrics, steep, lines, palette), [metrics, steep, lines, palette]);
  return (
    <section class="panel">
      <h2>
        {title}
        {steep && <span class="faint"> on a logarithmic axis</span>}
      </h2>
      <ul class="legend">
        {metrics.map(([name, points], i) => (
          <li key={name}>
            <span class="swatch" style={{ background: palette.series[i % palette.series.length] }} />
            {nameOf(name)} <b>{formatNumber(points[points.length - 1]?.[2])}</b>
          </li>
        ))}
      </ul>
      <Chart label={describe(title, metrics)} height={190} option={option} group="curves" />
    </section>
  );
}

export function CurvePanels({ curves, incidents, began }: Properties) {
  const lines = useMemo(() => {
    if (began === undefined) return [];
    return incidents.flatMap((incident) => {
      const time = timeOf(incident.time);
      // Those before the first point are no part of the curves.
      return time === undefined || time < began - 1
        ? []
        : [{ xAxis: Math.max(0, time - began), name: words(incident.reason ?? '') }];
    });
  }, [incidents, began]);
  const panels = useMemo(
    () =>
      PANELS.map((panel) => ({
        ...panel,
        metrics: Object.entries(curves)
          .filter(([name, points]) => panelOf(name) === panel.id && points.length > 0)
          .sort(([a], [b]) => a.localeCompare(b)),
      })).filter((panel) => panel.metrics.length > 0),
    [curves],
  );
  if (panels.length === 0) return <p class="empty">No curve yet: the first points come with the first steps.</p>;
  return (
    <div class="panels">
      {panels.map((panel) => (
        <Panel key={panel.id} {...panel} lines={lines} />
      ))}
    </div>
  );
}

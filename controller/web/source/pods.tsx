// SPDX-License-Identifier: Apache-2.0
// Pods over time: a strip for each name, on which each process is a piece from its start to its end.
import type { CustomSeriesRenderItemAPI, CustomSeriesRenderItemParams } from 'echarts';
import { useMemo } from 'preact/hooks';

import { Chart } from './chart';
import { formatClock, formatSeconds, timeOf, words } from './format';
import type { Life } from './story';
import { type Palette, usePalette } from './theme';
import type { Incident } from './types';

interface Properties {
  job: string; // its name, with which all of its pods' names begin
  lives: Map<string, Life[]>;
  incidents: Incident[];
  now: number; // until then strips of pods that are there are drawn
}

const ROLE_COLOR: Record<string, number> = { coordinator: 3, worker: 0, parameterServer: 2 };

// A rectangle from value 1 to value 2 in the row of value 0.
function renderLife(parameters: CustomSeriesRenderItemParams, api: CustomSeriesRenderItemAPI) {
  const area = parameters.coordSys as unknown as { x: number; width: number };
  const [x = 0, y = 0] = api.coord([api.value(1), api.value(0)]);
  const [end = 0] = api.coord([api.value(2), api.value(0)]);
  const left = Math.max(x, area.x);
  const width = Math.max(2, Math.min(end, area.x + area.width) - left - 1);
  return {
    type: 'rect' as const,
    shape: { x: left, y: y - 6, width, height: 12, r: 3 },
    style: { fill: String(api.visual('color')) },
  };
}

function optionOf(job: string, rows: [string, Life[]][], incidents: Incident[], now: number, palette: Palette) {
  const zero = Math.min(now, ...rows.flatMap(([, lives]) => lives.map((life) => life.from)));
  const pods = rows.map(([pod]) => pod);
  const marks = incidents.flatMap((incident) => {
    const time = timeOf(incident.time);
    return time === undefined || !incident.pod || !pods.includes(incident.pod)
      ? []
      : [{ name: words(incident.reason ?? ''), value: [Math.max(0, time - zero), incident.pod] }];
  });
  const tooltip = {
    renderMode: 'richText',
    confine: true,
    backgroundColor: palette.surface,
    borderColor: palette.line,
    textStyle: { color: palette.text, fontSize: 12 },
    formatter: (item: { name: string; value: (number | string)[]; seriesType: string }) =>
      item.seriesType === 'custom'
        ? `${item.name}\nfor ${formatSeconds(Number(item.value[2]) - Number(item.value[1]))}`
        : `${item.name}\nat ${formatClock(Number(item.value[0]))}`,
  };
  return {
    grid: { left: 8, right: 14, top: 4, bottom: 4, containLabel: true },
    tooltip,
    xAxis: {
      type: 'value',
      min: 0,
      max: Math.max(1, now - zero),
      axisLine: { lineStyle: { color: palette.line } },
      splitLine: { show: false },
      axisTick: { show: false },
      axisLabel: { color: palette.faint, fontSize: 11, formatter: formatClock, hideOverlap: true, showMaxLabel: false },
    },
    yAxis: {
      type: 'category',
      inverse: true,
      data: pods,
      axisLine: { show: false },
      axisTick: { show: false },
      axisLabel: {
        color: palette.text,
        fontSize: 11,
        width: 150,
        overflow: 'truncate',
        formatter: (pod: string) => (pod.startsWith(`${job}-`) ? pod.slice(job.length + 1) : pod),
      },
    },
    series: [
      {
        type: 'custom',
        renderItem: renderLife,
        encode: { x: [1, 2], y: 0 },
        data: rows.flatMap(([pod, lives], row) =>
          lives.map((life) => ({
            name: pod,
            value: [row, life.from - zero, (life.to ?? now) - zero],
            itemStyle: { color: palette.series[ROLE_COLOR[life.role] ?? 5] },
          })),
        ),
      },
      {
        type: 'scatter',
        symbol: 'path://M2 0 0 2 4 6 0 10 2 12 6 8 10 12 12 10 8 6 12 2 10 0 6 4z',
        symbolSize: 15,
        itemStyle: { color: palette.bad, borderColor: palette.surface, borderWidth: 1.5 },
        z: 5,
        data: marks,
      },
    ],
  };
}

export function PodStrips({ job, lives, incidents, now }: Properties) {
  const palette = usePalette();
  const rows = useMemo(() => [...lives.entries()], [lives]);
  const option = useMemo(() => optionOf(job, rows, incidents, now, palette), [job, rows, incidents, now, palette]);
  if (rows.length === 0) return null;
  const ended = rows.flatMap(([, all]) => all).filter((life) => life.to !== undefined).length;
  const label = `Pods over time: ${rows.length} names, ${ended} processes of them have ended. The list below has them one by one.`;
  return (
    <section class="panel wide">
      <h2>Pods over time</h2>
      <Chart label={label} height={34 + 24 * rows.length} option={option} />
    </section>
  );
}

// SPDX-License-Identifier: Apache-2.0
// Where the seconds went: a stack of activities, and the same as a list.
import { useMemo } from 'preact/hooks';

import { Chart } from './chart';
import { formatPercent, formatSeconds } from './format';
import { type Share, sharesOf } from './story';
import { activityColor, type Palette, usePalette } from './theme';

function optionOf(shares: Share[], palette: Palette) {
  return {
    grid: { left: 0, right: 0, top: 0, bottom: 0 },
    tooltip: {
      renderMode: 'richText',
      confine: true,
      backgroundColor: palette.surface,
      borderColor: palette.line,
      textStyle: { color: palette.text, fontSize: 12 },
      formatter: (item: { seriesName: string; value: number }) =>
        `${item.seriesName}  ${formatSeconds(shares.find((share) => share.label === item.seriesName)?.seconds)}`,
    },
    xAxis: { type: 'value', max: 1, show: false },
    yAxis: { type: 'category', data: [''], show: false },
    series: shares.map(({ name, label, share }) => ({
      type: 'bar',
      stack: 'all',
      name: label,
      barWidth: 26,
      data: [share],
      itemStyle: { color: activityColor(name, palette), borderColor: palette.surface, borderWidth: 1 },
    })),
  };
}

function Stack({ title, shares }: { title: string; shares: Share[] }) {
  const palette = usePalette();
  const option = useMemo(() => optionOf(shares, palette), [shares, palette]);
  const text = shares.map(({ label, share }) => `${label} ${formatPercent(share)}`).join(', ');
  return (
    <div class="stack">
      {title && <h3>{title}</h3>}
      <Chart label={`Where the seconds went: ${text}`} height={28} option={option} />
      <ul class="legend">
        {shares.map(({ name, label, share, seconds }) => (
          <li key={name}>
            <span class="swatch" style={{ background: activityColor(name, palette) }} />
            {label} <b>{formatPercent(share)}</b> <span class="faint">{formatSeconds(seconds)}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Seconds({ goodput }: { goodput: Record<string, number> | undefined }) {
  const workers = useMemo(() => sharesOf(goodput), [goodput]);
  const servers = useMemo(() => sharesOf(goodput, 'server'), [goodput]);
  if (workers.length === 0 && servers.length === 0) return null;
  return (
    <section class="panel wide">
      <h2>Where the seconds went</h2>
      {workers.length > 0 && <Stack title={servers.length > 0 ? 'Workers' : ''} shares={workers} />}
      {servers.length > 0 && <Stack title="Parameter servers" shares={servers} />}
    </section>
  );
}

// SPDX-License-Identifier: Apache-2.0
// draw.mjs DATA.json PICTURE.png: draws one dashboard, as draw.py has read it, the way that Grafana would.
import fs from 'node:fs';
import { createRequire } from 'node:module';

const { STARLING_WEB_TOOLS: tools, STARLING_BROWSER: program, STARLING_THEME: theme } = process.env;
const [, , data, picture] = process.argv;
const { chromium } = createRequire(`${tools}/package.json`)('playwright-core');

// Grafana's own sizes, colours and names.
const CELL = { height: 30, gap: 8 };
const THEMES = {
  dark: { page: '#111217', panel: '#181b1f', border: '#2c2e35', text: '#ccccdc', faint: '#8e8e99', grid: '#2a2c32' },
  light: { page: '#f4f5f5', panel: '#ffffff', border: '#dcdee0', text: '#24292e', faint: '#6e737a', grid: '#e9eaeb' },
};

const style = (colours) => `
  body { margin: 0; background: ${colours.page}; color: ${colours.text}; width: 1320px;
         font: 12px/1.4 Inter, Roboto, "Liberation Sans", sans-serif; }
  header { display: flex; gap: 8px; align-items: center; padding: 12px 12px 4px; }
  h1 { font-size: 16px; font-weight: 500; margin: 0 auto 0 4px; }
  header span { border: 1px solid ${colours.border}; background: ${colours.panel}; border-radius: 2px; padding: 4px 8px; }
  header b { color: #6e9fff; font-weight: 500; margin-right: 8px; }
  main { display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: ${CELL.height}px; gap: ${CELL.gap}px; padding: 8px 12px 12px; }
  section { background: ${colours.panel}; border: 1px solid ${colours.border}; border-radius: 2px;
            display: flex; flex-direction: column; min-width: 0; overflow: hidden; position: relative; }
  h2 { font-size: 13px; font-weight: 500; margin: 0; padding: 6px 10px 2px; white-space: nowrap; }
  .chart { flex: 1; min-height: 0; }
  ul { list-style: none; margin: 0; padding: 0 10px; margin-bottom: 6px; display: flex; flex-wrap: wrap; gap: 0 12px; max-height: 46px; overflow: hidden; font-size: 11px; }
  li::before { content: ""; display: inline-block; width: 14px; height: 4px; border-radius: 2px; background: var(--colour); margin-right: 6px; vertical-align: middle; }
  .empty { margin: auto; color: ${colours.faint}; font-size: 14px; }
  .stat { position: absolute; inset: 40px 10px auto; display: flex; justify-content: space-evenly; text-align: center; z-index: 1; }
  .stat div { font-size: 14px; color: ${colours.text}; }
  .stat strong { font-size: 40px; font-weight: 500; }
  .stats .chart { position: absolute; inset: 55% 0 0; }
`;

// Runs in the browser, where ECharts is.
function render({ title, begin, end, variables, panels, marks, colours }) {
  const HUES = {
    red: ['#ffa6b0', '#ff7383', '#f2495c', '#e02f44', '#c4162a'],
    orange: ['#ffcb7d', '#ffb357', '#ff9830', '#ff780a', '#fa6400'],
    yellow: ['#fff899', '#ffee52', '#fade2a', '#f2cc0c', '#e0b400'],
    green: ['#c8f2c2', '#96d98d', '#73bf69', '#56a64b', '#37872d'],
    blue: ['#c0d8ff', '#8ab8ff', '#5794f2', '#3274d9', '#1f60c4'],
    purple: ['#deb6f2', '#ca95e5', '#b877d9', '#a352cc', '#8f3bb8'],
  };
  const SHADES = ['super-light-', 'light-', '', 'semi-dark-', 'dark-'];
  const named = Object.fromEntries(
    Object.entries(HUES).flatMap(([hue, shades]) => shades.map((value, index) => [SHADES[index] + hue, value])),
  );
  const CLASSIC = [
    ...['#73bf69', '#f2cc0c', '#8ab8ff', '#ff780a', '#f2495c', '#5794f2', '#b877d9', '#705da0', '#37872d', '#fade2a'],
    ...['#447ebc', '#c15c17', '#890f02', '#0a437c', '#6d1f62', '#584477', '#b7dbab', '#f4d598', '#70dbed', '#f9ba8f'],
  ];
  const rounded = (value) => String(Number(value.toPrecision(3)));
  const scaled = (value, base, names) => {
    let at = 0;
    for (; Math.abs(value) >= base && at < names.length - 1; ++at) value /= base;
    return rounded(value) + names[at];
  };
  const seconds = (value) => {
    const size = Math.abs(value);
    if (size === 0) return '0 s';
    for (const [least, unit] of [
      [3600, 'h'],
      [60, 'min'],
      [1, 's'],
      [1e-3, 'ms'],
    ])
      if (size >= least) return `${rounded(value / least)} ${unit}`;
    return `${rounded(value / 1e-6)} µs`;
  };
  const units = {
    short: (value) => scaled(value, 1000, ['', ' K', ' Mil', ' Bil']),
    none: rounded,
    percentunit: (value) => `${rounded(100 * value)}%`,
    s: seconds,
    ops: (value) => `${scaled(value, 1000, ['', 'K'])} ops/s`,
    bytes: (value) => scaled(value, 1024, [' B', ' KiB', ' MiB', ' GiB']),
    Bps: (value) => scaled(value, 1000, [' B/s', ' kB/s', ' MB/s', ' GB/s']),
  };
  const element = (parent, tag, text = '', classes = '') => {
    const made = parent.appendChild(document.createElement(tag));
    made.textContent = text;
    made.className = classes;
    return made;
  };
  const last = (line) => line.values.findLast(([, value]) => value !== null)[1];
  const limitColour = ({ defaults }, value) =>
    named[defaults.thresholds.steps.filter((step) => step.value === null || value >= step.value).at(-1).color];

  function colourOf(panel, line, index) {
    const fixed = panel.overrides.find((one) => one.matcher.options === line.name);
    const colour = fixed?.properties[0].value.fixedColor;
    return colour ? (named[colour] ?? colour) : CLASSIC[index % CLASSIC.length];
  }

  function drawLines(place, panel, small) {
    const { custom = {}, thresholds, unit, min } = panel.defaults;
    // Steps of an axis of bytes are round in the unit that is shown.
    const most = Math.max(1, ...panel.lines.flatMap((line) => line.values.map(([, value]) => value)));
    const scale = unit === 'bytes' ? 1024 ** Math.floor(Math.log2(most) / 10) : 1;
    const stacked = custom.stacking !== undefined;
    const series = panel.lines.map((line, index) => ({
      type: 'line',
      name: line.name,
      showSymbol: false,
      color: small ? limitColour(panel, last(line)) : colourOf(panel, line, index),
      lineStyle: { width: stacked ? 0 : 1.3 },
      areaStyle: { opacity: small ? 0.2 : (custom.fillOpacity ?? 0) / 100 },
      stack: stacked ? 'all' : undefined,
      data: line.values.map(([at, value]) => [at * 1000, value === null ? null : value / scale]),
    }));
    const limits = custom.thresholdsStyle ? thresholds.steps.filter((step) => step.value !== null) : [];
    const dashed = (color) => ({ type: 'dashed', width: 1, color });
    for (const { value } of limits)
      series.push({
        type: 'line',
        showSymbol: false,
        lineStyle: dashed(named.red),
        data: [begin, end].map((at) => [at * 1000, value / scale]),
      });
    if (!small)
      series.push({
        type: 'line',
        data: [],
        markLine: {
          symbol: 'none',
          silent: true,
          animation: false,
          label: { show: false },
          lineStyle: dashed('#f2495caa'),
          data: marks.map(({ at }) => ({ xAxis: at * 1000 })),
        },
      });
    const axis = {
      axisLabel: { color: colours.faint, fontSize: 11 },
      splitLine: { show: !small, lineStyle: { color: colours.grid } },
    };
    echarts.init(place, null, { renderer: 'canvas' }).setOption({
      animation: false,
      grid: small
        ? { left: 0, right: 0, top: 4, bottom: 0 }
        : { left: 8, right: 14, top: 10, bottom: 4, containLabel: true },
      xAxis: {
        ...axis,
        type: 'time',
        minInterval: 60_000,
        show: !small,
        min: begin * 1000,
        max: end * 1000,
        splitNumber: 6,
        axisLine: { lineStyle: { color: colours.grid } },
        axisLabel: { ...axis.axisLabel, formatter: '{HH}:{mm}', hideOverlap: true },
      },
      yAxis: {
        ...axis,
        type: 'value',
        show: !small,
        min: min ?? undefined,
        scale: min === undefined,
        splitNumber: 4,
        axisLabel: { ...axis.axisLabel, formatter: (value) => units[unit](value * scale) },
      },
      series,
    });
  }

  function drawPanel(parent, panel) {
    const { x, y, w, h } = panel.place;
    const section = element(parent, 'section');
    section.style.gridArea = `${y + 1} / ${x + 1} / span ${h} / span ${w}`;
    element(section, 'h2', panel.title);
    panel.lines = panel.lines.filter((line) => line.values.some(([, value]) => value !== null));
    if (!panel.lines.length) return element(section, 'div', 'No data', 'empty');
    const chart = element(section, 'div', '', 'chart');
    if (panel.kind === 'stat') {
      section.classList.add('stats');
      const stat = element(section, 'div', '', 'stat');
      for (const line of panel.lines) {
        const value = last(line);
        const shown = element(stat, 'div');
        element(shown, 'div', line.name);
        element(shown, 'strong', units[panel.defaults.unit](value)).style.color = limitColour(panel, value);
      }
      return drawLines(chart, panel, true);
    }
    const list = element(section, 'ul');
    panel.lines.forEach((line, index) => {
      element(list, 'li', line.name).style.setProperty('--colour', colourOf(panel, line, index));
    });
    return drawLines(chart, panel, false);
  }

  const header = element(document.body, 'header');
  element(header, 'h1', title);
  for (const [label, value] of variables) {
    const shown = element(header, 'span');
    element(shown, 'b', label);
    shown.append(value === '.*' ? 'All' : value);
  }
  element(header, 'span', `Last ${Math.round((end - begin) / 60)} minutes`);
  const main = element(document.body, 'main');
  for (const panel of panels) drawPanel(main, panel);
}

const colours = THEMES[theme] ?? THEMES.dark;
const browser = await chromium.launch({
  executablePath: program,
  args: process.getuid() === 0 ? ['--no-sandbox'] : [], // it opens nothing but what stands here
});
try {
  const page = await browser.newPage({ viewport: { width: 1320, height: 400 } });
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  await page.setContent(`<!doctype html><style>${style(colours)}</style>`);
  await page.addScriptTag({ path: `${tools}/node_modules/echarts/dist/echarts.min.js` });
  await page.evaluate(render, { ...JSON.parse(fs.readFileSync(data, 'utf8')), colours });
  if (wrong.length) throw new Error(wrong.join('\n'));
  await page.screenshot({ path: picture, fullPage: true });
} finally {
  await browser.close();
}

// SPDX-License-Identifier: Apache-2.0
// One chart: a canvas that ECharts draws on, with a sentence for those who cannot see it. Everything
// that a chart shows also stands in a table of the page.
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts';
import { AxisPointerComponent, GridComponent, MarkLineComponent, TooltipComponent } from 'echarts/components';
import * as echarts from 'echarts/core';
import type { EChartsCoreOption } from 'echarts/core';
import { CanvasRenderer } from 'echarts/renderers';
import { useEffect, useRef } from 'preact/hooks';

echarts.use([
  AxisPointerComponent,
  BarChart,
  CanvasRenderer,
  CustomChart,
  GridComponent,
  LineChart,
  MarkLineComponent,
  ScatterChart,
  TooltipComponent,
]);

interface Properties {
  label: string;
  height: number;
  option: EChartsCoreOption;
  group?: string; // charts of one group show the same moment
}

export function Chart({ label, height, option, group }: Properties) {
  const place = useRef<HTMLDivElement>(null);
  const chart = useRef<echarts.ECharts | null>(null);

  useEffect(() => {
    if (!place.current) return;
    const made = echarts.init(place.current, null, { renderer: 'canvas' });
    chart.current = made;
    if (group) {
      made.group = group;
      echarts.connect(group);
    }
    const observer = new ResizeObserver(() => made.resize());
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      made.dispose();
      chart.current = null;
    };
  }, [group]);

  useEffect(() => {
    chart.current?.setOption({ animation: false, ...option }, { replaceMerge: ['series'] });
  }, [option]);

  return <div class="canvas" role="img" aria-label={label} ref={place} style={{ height: `${height}px` }} />;
}

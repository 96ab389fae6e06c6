// The history as charts: falling resolution, so that the last minutes and the last day fit.

import uPlot from "uplot";
import type { Event, History } from "./api";

const SPANS: Record<string, number> = { "10 min": 600, "3 h": 10_800, "24 h": 86_400 };

interface Lines {
  title: string;
  unit: string;
  columns: { name: string; label: string; colour: string }[];
}

const CHARTS: Lines[] = [
  {
    title: "Requests per second",
    unit: "/s",
    columns: [
      { name: "offered", label: "offered", colour: "--offered" },
      { name: "in_target", label: "in target", colour: "--good" },
      { name: "shed", label: "shed", colour: "--bad" },
      { name: "capacity", label: "capacity", colour: "--muted" },
    ],
  },
  {
    title: "Response time",
    unit: "ms",
    columns: [
      { name: "p50", label: "p50", colour: "--good" },
      { name: "p95", label: "p95", colour: "--offered" },
      { name: "p99", label: "p99", colour: "--bad" },
    ],
  },
];

/** The points of the finest ring that reaches far enough back. */
function chosen(history: History, span: number): (number | null)[][] {
  const rings = [...history.rings].sort((a, b) => a.seconds - b.seconds);
  const since = Date.now() / 1e3 - span;
  const ring = rings.find((it) => it.seconds * it.points.length >= span) ?? rings[rings.length - 1];
  const finer = rings.filter((it) => it.seconds < (ring?.seconds ?? 1));
  const first = (points: (number | null)[][]) => points[0]?.[0] ?? Infinity;
  // Where a coarse ring is still empty, what a finer one has is all there is.
  const points = [...(ring?.points ?? [])];
  for (const other of finer.reverse()) {
    const last = points[points.length - 1]?.[0] ?? -Infinity;
    if (points.length === 0 || last! > first(other.points)!) {
      points.push(...other.points.filter((point) => point[0]! > last!));
    }
  }
  return points.filter((point) => point[0]! >= since);
}

/** Vertical marks at overloads, changes of mode and operators' actions. */
function marks(events: Event[]): uPlot.Plugin {
  return {
    hooks: {
      draw: (plot) => {
        const context = plot.ctx;
        const { top, height, left, width } = plot.bbox;
        context.save();
        context.globalAlpha = 0.5;
        for (const event of events) {
          const x = plot.valToPos(Date.parse(event.time) / 1e3, "x", true);
          if (x < left || x > left + width) continue;
          context.strokeStyle = colour(event.type === "overload" ? "--bad" : "--muted");
          context.beginPath();
          context.moveTo(x, top);
          context.lineTo(x, top + height);
          context.stroke();
        }
        context.restore();
      },
    },
  };
}

function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export class Charts {
  readonly spans = Object.keys(SPANS);
  span = this.spans[0]!;
  private plots: uPlot[] = [];
  private events: Event[] = [];
  private drawn = "";

  constructor(private readonly holder: HTMLElement) {}

  show(history: History, events: Event[]): void {
    this.events = events.filter((event) => ["overload", "mode", "switch"].includes(event.type));
    const points = chosen(history, SPANS[this.span]!);
    const width = Math.max(280, this.holder.clientWidth);
    const look = `${width} ${this.events.length} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
    if (look !== this.drawn) {
      this.plots.forEach((plot) => plot.destroy());
      this.plots = CHARTS.map((chart) => this.plot(chart, width));
      this.drawn = look;
    }
    CHARTS.forEach((chart, index) => {
      const times = points.map((point) => point[0]!);
      const series = chart.columns.map(({ name }) => {
        const at = history.columns.indexOf(name);
        return points.map((point) => point[at] ?? null);
      });
      this.plots[index]!.setData([times, ...series]);
    });
  }

  private plot(chart: Lines, width: number): uPlot {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 } };
    const options: uPlot.Options = {
      title: chart.title,
      width,
      height: 200,
      plugins: [marks(this.events)],
      axes: [axis, { ...axis, size: 60, values: (_, ticks) => ticks.map((it) => `${it} ${chart.unit}`) }],
      scales: { y: { range: (_, __, max) => [0, Math.max(1, max * 1.05)] } },
      series: [
        {},
        ...chart.columns.map(({ label, colour: name }) => ({
          label,
          stroke: colour(name),
          width: 1.5,
          points: { show: false },
        })),
      ],
    };
    return new uPlot(options, [[], ...chart.columns.map(() => [])], this.holder);
  }
}

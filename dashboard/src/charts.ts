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

/** The finest points there are for each time: seconds lately, minutes long ago. */
function chosen(history: History, span: number): (number | null)[][] {
  const rings = [...history.rings].sort((a, b) => a.seconds - b.seconds);
  const since = Date.now() / 1e3 - span;
  let points: (number | null)[][] = [];
  for (const ring of rings) {
    const first = points[0]?.[0] ?? Infinity;
    points = [...ring.points.filter((point) => point[0]! < first), ...points];
  }
  return points.filter((point) => point[0]! >= since);
}

/** Lines of the log that a change by an operator or by the file writes. */
const CHANGES = /put in force|by the admin API|^(mode|parameters)/;

function marked(event: Event): boolean {
  if (event.type === "notice") return CHANGES.test(String(event.line));
  return ["overload", "mode", "switch"].includes(event.type);
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

/** The time of day on a 24-hour clock; seconds where ticks are that close. */
function times(_: uPlot, ticks: number[]): string[] {
  const [first = 0, second = 60] = ticks;
  const [from, to] = [11, second - first < 60 ? 19 : 16];
  return ticks.map((it) => new Date(it * 1e3).toISOString().slice(from, to));
}

export class Charts {
  readonly spans = Object.keys(SPANS);
  span = this.spans[0]!;
  private plots: uPlot[] = [];
  private events: Event[] = [];
  private drawn = "";

  constructor(private readonly holder: HTMLElement) {}

  show(history: History, events: Event[]): void {
    this.events = events.filter(marked);
    const points = chosen(history, SPANS[this.span]!);
    const width = Math.max(280, this.holder.clientWidth - 2);
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

  /** The chosen time until now; no longer than there are points, and at least a minute. */
  private stretch(first: number | null): [number, number] {
    const now = Date.now() / 1e3;
    return [Math.max(now - SPANS[this.span]!, Math.min(first ?? now, now - 60)), now];
  }

  private plot(chart: Lines, width: number): uPlot {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 } };
    const options: uPlot.Options = {
      title: chart.title,
      width,
      height: 200,
      legend: { live: false },
      plugins: [marks(this.events)],
      axes: [{ ...axis, space: 90, values: times }, { ...axis, size: 76, values: (_, ticks) => ticks.map((it) => `${it} ${chart.unit}`) }],
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "Etc/UTC"),
      scales: {
        x: { range: (_, first) => this.stretch(first) },
        y: { range: (_, __, max) => [0, Math.max(1, max * 1.05)] },
      },
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

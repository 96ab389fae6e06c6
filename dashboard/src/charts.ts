// The history as charts: falling resolution, so that the last minutes and the last day fit.

import uPlot from "uplot";
import type { History, Mark } from "./api";

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

const COLOURS: Record<Mark["kind"], string> = {
  overload_began: "--bad",
  overload_ended: "--good",
  reload: "--muted",
  operator: "--muted",
};

/** Points of each ring at most, as the proxy keeps them. */
const POINTS_MAX = 1440;

/** The last time of which anything is known. */
export function known(history: History | undefined): number {
  const last = (history?.rings ?? []).map((ring) => ring.points[ring.points.length - 1]?.[0] ?? 0);
  return last.length === 0 ? 0 : Math.min(...last);
}

/** What was known, and what came since. */
export function joined(before: History | undefined, more: History): History {
  if (before === undefined) return more;
  const rings = more.rings.map((ring, index) => {
    const old = before.rings[index]?.points ?? [];
    const last = old[old.length - 1]?.[0] ?? 0;
    const points = [...old, ...ring.points.filter((point) => point[0]! > last)];
    return { ...ring, points: points.slice(-POINTS_MAX) };
  });
  const seen = new Set(before.marks.map((mark) => JSON.stringify(mark)));
  const marks = [...before.marks, ...more.marks.filter((mark) => !seen.has(JSON.stringify(mark)))];
  return { columns: more.columns, rings, marks };
}

/** Vertical marks at overloads, reloads and operators' actions. */
function marks(all: Mark[]): uPlot.Plugin {
  return {
    hooks: {
      draw: (plot) => {
        const context = plot.ctx;
        const { top, height, left, width } = plot.bbox;
        context.save();
        context.globalAlpha = 0.5;
        for (const mark of all) {
          const x = plot.valToPos(mark.time, "x", true);
          if (x < left || x > left + width) continue;
          context.strokeStyle = colour(COLOURS[mark.kind]);
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
  private drawn = "";

  constructor(private readonly holder: HTMLElement) {}

  show(history: History): void {
    const points = chosen(history, SPANS[this.span]!);
    const width = Math.max(280, this.holder.clientWidth - 2);
    const look = `${width} ${JSON.stringify(history.marks)} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
    if (look !== this.drawn) {
      this.plots.forEach((plot) => plot.destroy());
      this.plots = CHARTS.map((chart) => this.plot(chart, width, history.marks));
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

  private plot(chart: Lines, width: number, all: Mark[]): uPlot {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 } };
    const options: uPlot.Options = {
      title: chart.title,
      width,
      height: 200,
      legend: { live: false },
      plugins: [marks(all)],
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

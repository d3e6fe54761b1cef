// Histories out of the `*_details` objects of the API.

export interface Sample {
  sample: number;
  timestamp: number;
}

export interface Details {
  rate?: number;
  samples?: Sample[];
}

export interface Point {
  at: number;
  value: number;
}

export interface Line {
  name: string;
  points: Point[];
  now: number;
}

/** A level, oldest first. */
export function levels(details: Details | undefined): Point[] {
  return [...(details?.samples ?? [])]
    .sort((a, b) => a.timestamp - b.timestamp)
    .map(({ sample, timestamp }) => ({ at: timestamp, value: sample }));
}

/** How fast a counter grew from sample to sample; one that fell has begun anew. */
export function rates(details: Details | undefined): Point[] {
  const points = levels(details);
  const found: Point[] = [];
  for (let i = 1; i < points.length; i += 1) {
    const [before, now] = [points[i - 1]!, points[i]!];
    const seconds = (now.at - before.at) / 1000;
    if (seconds > 0) found.push({ at: now.at, value: Math.max(0, (now.value - before.value) / seconds) });
  }
  return found;
}

type Stats = Record<string, unknown>;

function details(stats: Stats | undefined, name: string): Details | undefined {
  return stats?.[`${name}_details`] as Details | undefined;
}

export function rateLines(stats: Stats | undefined, names: [string, string][]): Line[] {
  return names.map(([field, name]) => {
    const of = details(stats, field);
    const points = rates(of);
    // What is said beside a chart is where its line ends.
    return { name, points, now: points.at(-1)?.value ?? of?.rate ?? 0 };
  });
}

export function levelLines(stats: Stats | undefined, names: [string, string][]): Line[] {
  return names.map(([field, name]) => ({
    name,
    points: levels(details(stats, field)),
    now: (stats?.[field] as number | undefined) ?? 0,
  }));
}

/** A round number at or above the largest value: 1, 2 or 5 times a power of ten. */
export function ceiling(largest: number): number {
  if (!(largest > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(largest));
  for (const step of [1, 2, 5, 10]) {
    if (largest <= step * power * (1 + 1e-9)) return step * power;
  }
  return 10 * power;
}

/** The same of bytes, in the unit that they are shown in. */
export function byteCeiling(largest: number): number {
  let unit = 1;
  while (largest / unit >= 1024) unit *= 1024;
  return ceiling(largest / unit) * unit;
}

/** Without the nothing that histories begin with when they are older than what they are of. */
export function begun(lines: Line[]): Line[] {
  return lines.map((line) => ({ ...line, points: line.points.slice(Math.max(0, line.points.findIndex(({ value }) => value > 0))) }));
}

export const SPANS: Record<string, { title: string; age: number; step: number }> = {
  "1m": { title: "1 min", age: 60, step: 5 },
  "10m": { title: "10 min", age: 600, step: 5 },
  "1h": { title: "1 h", age: 3600, step: 60 },
  "8h": { title: "8 h", age: 28800, step: 300 },
  "24h": { title: "24 h", age: 86400, step: 1200 },
};

export function spanQuery(span: string, ...kinds: string[]): string {
  const { age, step } = SPANS[span] ?? SPANS["10m"]!;
  return kinds.map((kind) => `${kind}_age=${age}&${kind}_incr=${step}`).join("&");
}

// Puts exchanges and queues in columns, so that bindings lead from left to right.

import type { Binding } from "./types";

export interface Box {
  id: string;
  kind: "exchange" | "queue";
  name: string;
  column: number;
  row: number;
}

export interface Edge {
  from: string;
  to: string;
  /** The keys of all bindings between the two. */
  labels: string[];
}

/** A place that an edge goes through on its way across a column, so that it runs behind no box. */
export interface Spot {
  column: number;
  row: number;
}

export interface Picture {
  boxes: Map<string, Box>;
  edges: (Edge & { via: Spot[] })[];
  /** How many places each column has. */
  heights: number[];
  columns: number;
  rows: number;
}

const id = (kind: string, name: string) => `${kind} ${name}`;

/** Bindings between the same two become one edge; the default exchange's are left out. */
export function edgesOf(bindings: Binding[]): Edge[] {
  const found = new Map<string, Edge>();
  for (const binding of bindings) {
    if (binding.source === "") continue;
    const from = id("exchange", binding.source);
    const to = id(binding.destination_type, binding.destination);
    const key = `${from}\n${to}`;
    const edge = found.get(key) ?? { from, to, labels: [] };
    edge.labels.push(binding.routing_key || (Object.keys(binding.arguments).length ? JSON.stringify(binding.arguments) : ""));
    found.set(key, edge);
  }
  return [...found.values()];
}

/** How many exchanges are before each on its longest way; circles end where they began. */
function depths(edges: Edge[], exchanges: string[]): Map<string, number> {
  const sources = new Map<string, string[]>();
  for (const edge of edges) {
    if (edge.to.startsWith("exchange ")) sources.set(edge.to, [...(sources.get(edge.to) ?? []), edge.from]);
  }
  const found = new Map<string, number>();
  function depth(of: string, on: Set<string>): number {
    const known = found.get(of);
    if (known !== undefined) return known;
    if (on.has(of)) return 0;
    on.add(of);
    const before = (sources.get(of) ?? []).map((source) => depth(source, on) + 1);
    on.delete(of);
    const result = Math.max(0, ...before);
    found.set(of, result);
    return result;
  }
  for (const exchange of exchanges) depth(exchange, new Set());
  return found;
}

export function layOut(bindings: Binding[]): Picture {
  const edges = edgesOf(bindings);
  const ids = [...new Set(edges.flatMap((edge) => [edge.from, edge.to]))].sort();
  const depth = depths(edges, ids.filter((each) => each.startsWith("exchange ")));
  const last = Math.max(0, ...depth.values()) + 1;
  const columnOf = (each: string) => (each.startsWith("queue ") ? last : (depth.get(each) ?? 0));
  const columns: string[][] = Array.from({ length: last + 1 }, () => []);
  for (const each of ids) columns[columnOf(each)]!.push(each);
  // An edge across several columns becomes steps from column to column, each with a place of its own.
  const ways = edges.map((edge) => {
    const via = Array.from({ length: Math.max(0, columnOf(edge.to) - columnOf(edge.from) - 1) }, (_, i) => columnOf(edge.from) + 1 + i);
    const names = via.map((column) => `via ${column} ${edge.from}\n${edge.to}`);
    names.forEach((name, i) => columns[via[i]!]!.push(name));
    return { edge, via, names, steps: [edge.from, ...names, edge.to] };
  });
  const steps = ways.flatMap((way) => way.steps.slice(1).map((to, i) => ({ from: way.steps[i]!, to })));
  const rows = new Map<string, number>();
  columns.forEach((column, i) => place(column, i, steps, rows));
  // Once more from the right, so that sources stand near what they lead to; then from the left again.
  for (let i = columns.length - 2; i >= 0; i -= 1) {
    columns[i] = settle(columns[i]!, (each) => mean(steps.filter((step) => step.from === each).map((step) => rows.get(step.to) ?? 0)), rows);
  }
  columns.forEach((column, i) => i > 0 && place(column, i, steps, rows));
  const boxes = new Map<string, Box>();
  for (const each of ids) {
    const [kind, ...name] = each.split(" ");
    boxes.set(each, { id: each, kind: kind as Box["kind"], name: name.join(" "), column: columnOf(each), row: rows.get(each) ?? 0 });
  }
  const heights = columns.map((column) => column.length);
  return {
    boxes,
    edges: ways.map(({ edge, via, names }) => ({ ...edge, via: via.map((column, i) => ({ column, row: rows.get(names[i]!) ?? 0 })) })),
    heights,
    columns: columns.length,
    rows: Math.max(1, ...heights),
  };
}

interface Step {
  from: string;
  to: string;
}

function place(column: string[], i: number, edges: Step[], rows: Map<string, number>): void {
  if (i === 0) column.forEach((each, row) => rows.set(each, row));
  else settle(column, (each) => mean(edges.filter((edge) => edge.to === each).map((edge) => rows.get(edge.from) ?? 0)), rows);
}

function settle(column: string[], wish: (each: string) => number, rows: Map<string, number>): string[] {
  const sorted = column.map((each) => ({ each, wish: wish(each) })).sort((a, b) => a.wish - b.wish || a.each.localeCompare(b.each));
  sorted.forEach(({ each }, row) => rows.set(each, row));
  return sorted.map(({ each }) => each);
}

function mean(values: number[]): number {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : 0;
}

/** One step of an edge, in points. */
export interface Curve {
  x1: number;
  y1: number;
  x2: number;
  y2: number;
}

/** Steps from column to column, and straight on where a column is crossed. */
export function pathOf(curves: Curve[]): string {
  return curves
    .map(({ x1, y1, x2, y2 }, i) => {
      const half = (x2 - x1) / 2;
      return `${i === 0 ? "M" : "L"}${x1} ${y1} C${x1 + half} ${y1} ${x2 - half} ${y2} ${x2} ${y2}`;
    })
    .join(" ");
}

/** A place on such a curve. */
export function along({ x1, y1, x2, y2 }: Curve, part: number): { x: number; y: number } {
  const half = (x2 - x1) / 2;
  const [a, b, c, d] = [(1 - part) ** 3, 3 * (1 - part) ** 2 * part, 3 * (1 - part) * part ** 2, part ** 3];
  return { x: a * x1 + b * (x1 + half) + c * (x2 - half) + d * x2, y: (a + b) * y1 + (c + d) * y2 };
}

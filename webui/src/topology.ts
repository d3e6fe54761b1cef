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

export interface Picture {
  boxes: Map<string, Box>;
  edges: Edge[];
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
  const ids = [...new Set(edges.flatMap((edge) => [edge.from, edge.to]))];
  const exchanges = ids.filter((each) => each.startsWith("exchange "));
  const depth = depths(edges, exchanges);
  const last = Math.max(0, ...depth.values()) + 1;
  const columns: string[][] = Array.from({ length: last + 1 }, () => []);
  for (const each of ids.sort()) columns[each.startsWith("queue ") ? last : (depth.get(each) ?? 0)]!.push(each);
  const rows = new Map<string, number>();
  columns.forEach((column, i) => place(column, i, edges, rows));
  // Once more from the right, so that sources stand near what they lead to.
  for (let i = columns.length - 2; i >= 0; i -= 1) {
    columns[i] = settle(columns[i]!, (each) => mean(edges.filter((edge) => edge.from === each).map((edge) => rows.get(edge.to) ?? 0)), rows);
  }
  const boxes = new Map<string, Box>();
  columns.forEach((column, i) =>
    column.forEach((each) => {
      const [kind, ...name] = each.split(" ");
      boxes.set(each, { id: each, kind: kind as Box["kind"], name: name.join(" "), column: i, row: rows.get(each) ?? 0 });
    }),
  );
  return { boxes, edges, columns: columns.length, rows: Math.max(1, ...columns.map((column) => column.length)) };
}

function place(column: string[], i: number, edges: Edge[], rows: Map<string, number>): void {
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

import { expect, test } from "vitest";

import { along, edgesOf, layOut, pathOf } from "../src/topology";
import type { Binding } from "../src/types";

const binding = (source: string, destination: string, key: string = "", kind: "queue" | "exchange" = "queue"): Binding => ({
  source,
  vhost: "/",
  destination,
  destination_type: kind,
  routing_key: key,
  arguments: {},
  properties_key: key || "~",
});

test("bindings between the same two are one edge with all keys", () => {
  expect(edgesOf([binding("x", "q", "a"), binding("x", "q", "b"), binding("", "q", "q")])).toEqual([{ from: "exchange x", to: "queue q", labels: ["a", "b"] }]);
});

test("exchanges stand before what they lead to, queues last", () => {
  const { boxes, columns } = layOut([binding("a", "b", "", "exchange"), binding("b", "q"), binding("a", "q")]);
  expect([boxes.get("exchange a")!.column, boxes.get("exchange b")!.column, boxes.get("queue q")!.column]).toEqual([0, 1, 2]);
  expect(columns).toBe(3);
});

test("a circle of exchanges comes to an end", () => {
  const { boxes } = layOut([binding("a", "b", "", "exchange"), binding("b", "a", "", "exchange"), binding("b", "q")]);
  expect(boxes.size).toBe(3);
});

test("no two boxes share a place", () => {
  const bindings = Array.from({ length: 30 }, (_, i) => binding(`x${i % 4}`, `q${i % 11}`, String(i)));
  const places = [...layOut(bindings).boxes.values()].map(({ column, row }) => `${column} ${row}`);
  expect(new Set(places).size).toBe(places.length);
});

test("names may hold spaces", () => {
  expect(layOut([binding("my exchange", "my queue")]).boxes.get("queue my queue")!.name).toBe("my queue");
});

test("an edge across a column has a place of its own there", () => {
  const { boxes, edges, heights, rows } = layOut([binding("a", "b", "", "exchange"), binding("b", "q"), binding("a", "r")]);
  const long = edges.find(({ to }) => to === "queue r")!;
  expect(long.via).toHaveLength(1);
  expect(long.via[0]!.column).toBe(1);
  expect(long.via[0]!.row).not.toBe(boxes.get("exchange b")!.row);
  expect([heights, rows]).toEqual([[1, 2, 2], 2]);
});

test("curves begin and end level, and labels lie on them", () => {
  const curve = { x1: 0, y1: 0, x2: 100, y2: 50 };
  expect(pathOf([curve, { x1: 200, y1: 50, x2: 300, y2: 50 }])).toBe("M0 0 C50 0 50 50 100 50 L200 50 C250 50 250 50 300 50");
  expect([along(curve, 0), along(curve, 0.5), along(curve, 1)]).toEqual([
    { x: 0, y: 0 },
    { x: 50, y: 25 },
    { x: 100, y: 50 },
  ]);
});

import { expect, test } from "vitest";

import { edgesOf, layOut } from "../src/topology";
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

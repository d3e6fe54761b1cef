import { expect, test } from "vitest";

import { joined, lanes, toneOf, wording } from "../src/timeline";
import type { ClusterEvent } from "../src/types";

const event = (id: number, name: string, details: Record<string, unknown> = {}): ClusterEvent => ({ id, timestamp: id * 1000, event: name, details });

test("a node is down from its end to its next start", () => {
  const events = [event(1, "node.down", { node: "n2" }), event(2, "link.down", { node: "n2" }), event(5, "node.registered", { node: "n2" }), event(9, "node.down", { node: "n2" })];
  const lane = lanes(events, ["n1", "n2"], "n1").find(({ node }) => node === "n2")!;
  expect(lane.down).toEqual([
    { from: 1000, to: 5000 },
    { from: 9000, to: null },
  ]);
  expect(lane.marks).toHaveLength(4);
});

test("what names no node stands at the one that was asked", () => {
  const found = lanes([event(1, "policy.set", { name: "ha", vhost: "/" })], ["n1", "n2"], "n2");
  expect(found.map(({ node, marks }) => [node, marks.length])).toEqual([
    ["n1", 0],
    ["n2", 1],
  ]);
});

test("a node that is not in the list gets a lane of its own", () => {
  expect(lanes([event(1, "node.forgotten", { node: "n9" })], ["n1"], "n1").map(({ node }) => node)).toEqual(["n1", "n9"]);
});

test("events come once, in order, and only so many are kept", () => {
  const all = joined([event(1, "a"), event(2, "b")], [event(2, "b"), event(3, "c")], 2);
  expect(all.map(({ id }) => id)).toEqual([2, 3]);
});

test("events are told in words, unknown ones as they are", () => {
  expect(wording(event(1, "node.down", { node: "n2" }))).toBe("n2 is down");
  expect(wording(event(1, "some.thing", { a: 1, b: { c: 2 } }))).toBe('some.thing: a 1, b {"c":2}');
  expect(["node.down", "node.up", "cluster.leader", "policy.set"].map((name) => toneOf(event(1, name)))).toEqual(["bad", "good", "warn", "plain"]);
});

test("nodes count their events each for itself", () => {
  const theirs = { ...event(1, "queue.promoted", { name: "q", vhost: "/", epoch: 2 }), seen_by: "n2", timestamp: 1500 };
  const all = joined([event(1, "node.down", { node: "n3" }), event(2, "link.down", { node: "n3" })], [theirs], 10);
  expect(all.map(({ event: name }) => name)).toEqual(["node.down", "queue.promoted", "link.down"]);
  expect(lanes([theirs], [], "n1")[0]!.node).toBe("n2");
});

import { expect, test } from "vitest";

import { grouped, groupWording, isBusy, joined, lanes, toneOf, withLosses, wording } from "../src/timeline";
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

const copy = (id: number, what: string, name: string, more: Record<string, unknown> = {}) => event(id, `queue.sync_${what}`, { name, vhost: "/", node: "n2", ...more });

test("copies are bars in the lane of the node that gets them", () => {
  const events = [copy(1, "started", "a"), copy(2, "started", "b"), copy(4, "ended", "a", { how: "done" }), copy(5, "started", "a")];
  const lane = lanes(events, ["n1", "n2"], "n1")[1]!;
  expect(lane.copies.map(({ name, from, to, how }) => [name, from, to, how])).toEqual([
    ["a", 1000, 4000, "done"],
    ["b", 2000, null, null],
    ["a", 5000, null, null],
  ]);
  expect(lane.marks).toEqual([]);
});

test("a node that goes down ends the copies to it, and so does a new one of the same queue", () => {
  const lane = lanes([copy(1, "started", "a"), copy(2, "started", "a"), event(3, "node.down", { node: "n2" })], ["n2"], "n1")[0]!;
  expect(lane.copies.map(({ to, how }) => [to, how])).toEqual([
    [2000, "interrupted"],
    [3000, "interrupted"],
  ]);
});

test("an end whose beginning nobody knows of is no bar", () => {
  expect(lanes([copy(1, "ended", "a", { how: "done" })], ["n2"], "n1")[0]!.copies).toEqual([]);
});

test("a failover of many queues is one line, newest first", () => {
  const promoted = (id: number, seen: string) => ({ ...event(id, "queue.promoted", { name: `q${id}`, vhost: "/", epoch: 2 }), seen_by: seen });
  const groups = grouped([event(1, "node.down", { node: "n1" }), promoted(2, "n2"), promoted(3, "n3"), promoted(4, "n2"), promoted(20, "n2")]);
  expect(groups.map(({ first, events }) => [first.id, events.length])).toEqual([
    [20, 1],
    [4, 2],
    [3, 1],
    [1, 1],
  ]);
  expect(groupWording(groups[1]!)).toContain("and so for 1 other queue");
  expect(groupWording(groups[3]!)).toBe("n1 is down");
});

test("a promotion tells who followed whom, how long it took and what it cost", () => {
  const details = { name: "q", vhost: "/", epoch: 3, node: "n2@h", from: "n1@h", cause: "failure", took_ms: 412, dropped: 0, redelivered: 37 };
  const told = (more: Record<string, unknown>) => wording(event(1, "queue.promoted", { ...details, ...more }));
  expect(told({})).toBe("queue q in /: n1 → n2, failover, took 412 ms, 0 messages dropped, 37 redelivered");
  expect(told({ cause: "handover", redelivered: null })).toBe("queue q in /: n1 → n2, handed over, took 412 ms");
  expect(told({ cause: "unclean", dropped: null })).toContain("how many messages were dropped is not known until n1 is back, 37 redelivered");
  expect(told({ cause: "return", from: null })).toContain("n2 is master, back after it was down");
  // Kept by an earlier version.
  expect(wording(event(1, "queue.promoted", { name: "q", vhost: "/", epoch: 3 }))).toBe("queue q in / got a new master (epoch 3)");
  const many = grouped([event(1, "queue.promoted", details), event(2, "queue.promoted", { ...details, name: "r", took_ms: 900 })]);
  expect(groupWording(many[0]!)).toContain("and so for 1 other queue: at most 900 ms, 0 dropped, 74 redelivered in all");
});

test("pauses are told", () => {
  expect(wording(event(1, "queue.paused", { name: "q", vhost: "/", by: "anna" }))).toBe("the consumers of queue q in / were paused by anna");
  expect(toneOf(event(1, "queue.paused"))).toBe("warn");
});

test("how a copy ended is told", () => {
  const ended = (how: string) => copy(1, "ended", "a", { how, bytes: 2048, took_ms: 1500 });
  expect(wording(ended("done"))).toBe("queue a in /: the copy to n2 is complete, 2 KiB in 2 s");
  expect(["done", "cancelled"].map((how) => toneOf(ended(how)))).toEqual(["good", "warn"]);
});

test("what an unclean promotion cost is told by the old master when it is back", () => {
  const promotion = event(5, "queue.promoted", { name: "q", vhost: "/", epoch: 3, node: "n2@h", from: "n1@h", cause: "unclean", took_ms: 10, dropped: null, redelivered: 0 });
  const back = (id: number, more: Record<string, unknown>) => event(id, "queue.returned", { name: "q", vhost: "/", node: "n1@h", epoch: 4, messages: 12, upto: false, ...more });
  const told = (...events: ClusterEvent[]) => withLosses([promotion, ...events]).map(wording);
  expect(told()).toEqual([expect.stringContaining("not known until n1 is back, 0 redelivered")]);
  // One line: what came later is told where it belongs.
  expect(told(back(9, {}))).toEqual([expect.stringContaining("12 messages dropped, put aside on n1, 0 redelivered")]);
  expect(told(back(9, { upto: true }))).toEqual([expect.stringContaining("at most 12 messages dropped")]);
  expect(told(back(9, { messages: 0, upto: true }))).toEqual([expect.stringContaining(", 0 messages dropped, 0 redelivered")]);
  // A second return has nothing more to tell.
  expect(told(back(9, {}), back(10, { messages: 0 }))).toEqual([expect.stringContaining("12 messages dropped")]);
  // Of another queue, of another node, of a time before.
  for (const other of [{ name: "r" }, { vhost: "v" }, { node: "n3@h" }, { epoch: 2 }]) expect(told(back(9, other))).toEqual([expect.stringContaining("not known until n1")]);
  // Nobody was the master before: whoever comes back may tell.
  const nobody = event(5, "queue.promoted", { ...promotion.details, from: null });
  expect(withLosses([nobody]).map(wording)[0]).toContain("not known until the old master is back");
  expect(withLosses([nobody, back(9, { node: "n3@h" })]).map(wording)[0]).toContain("12 messages dropped, put aside on n3");
});

test("many promotions say in one line how many are not known yet", () => {
  const promoted = (id: number, dropped: number | null) => event(id, "queue.promoted", { name: `q${id}`, vhost: "/", epoch: 3, node: "n2", from: "n1", cause: "unclean", took_ms: 10, dropped, redelivered: 1 });
  expect(groupWording(grouped([promoted(1, null), promoted(2, null), promoted(3, 4)])[0]!)).toContain("4 dropped, 2 queues not known yet, 3 redelivered in all");
});

test("copies that are complete and mirrors in sync are good news", () => {
  expect(["queue.synchronised", "queue.sync_started", "queue.unsynchronised"].map((name) => toneOf(event(1, name)))).toEqual(["good", "plain", "warn"]);
});

test("a lane that nothing is to be seen of is known", () => {
  const [quiet, busy] = lanes([event(1, "node.down", { node: "n1" }), event(2, "node.up", { node: "n1" }), event(8, "node.down", { node: "n2" })], ["n1", "n2"], "n1");
  expect([isBusy(quiet!, 5000), isBusy(quiet!, 1500), isBusy(busy!, 100_000)]).toEqual([false, true, true]);
});

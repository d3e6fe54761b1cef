import { expect, test } from "vitest";

import { added, type Cause, type CauseAnswer, counted, literal, matchOf, NOBODY, NOTHING, reasonText } from "../src/deadletters";

const cause = (queue: string | null, messages: number, more: Partial<Cause> = {}): Cause => ({
  reason: queue === null ? null : "rejected",
  queue,
  exchange: queue === null ? null : "x",
  messages,
  bytes: messages * 10,
  oldest: null,
  newest: null,
  example: { payload: "", payload_encoding: "string", payload_bytes: 0, exchange: "", routing_key: "", redelivered: false, properties: [] },
  ...more,
});

const answer = (causes: Cause[], more: Partial<CauseAnswer> = {}): CauseAnswer => ({
  causes,
  looked_at: causes.reduce((sum, each) => sum + each.messages, 0),
  untold: 0,
  is_over: false,
  last_slot: "1",
  messages_ready: 100,
  ...more,
});

test("answers about the same queue are added up, the most messages first", () => {
  const first = counted(NOTHING, answer([cause("a", 2, { oldest: 5, newest: 7 }), cause("b", 3)]));
  const all = counted(first, answer([cause("a", 4, { oldest: 1, newest: 6 })], { is_over: true, untold: 2 }));
  expect(all.causes.map(({ queue, messages, bytes, oldest, newest }) => [queue, messages, bytes, oldest, newest])).toEqual([
    ["a", 6, 60, 1, 7],
    ["b", 3, 30, null, null],
  ]);
  expect([all.lookedAt, all.untold, all.isOver]).toEqual([9, 2, true]);
});

test("an answer about nothing is the last", () => {
  expect(counted(NOTHING, answer([], { looked_at: 0 })).isOver).toBe(true);
});

test("a cause is matched as it is written", () => {
  expect(literal("a*b?[c]")).toBe("a[*]b[?][[]c]");
  expect(matchOf(cause("orders.*", 1))).toEqual({ reason: "rejected", queue: "orders.[*]", published_to: "x" });
  expect(matchOf(cause("q", 1, { exchange: "" }))).toMatchObject({ published_to: "" });
  expect(matchOf(cause("q", 1, { exchange: null }))).toEqual({ reason: "rejected", queue: "q" });
  expect(matchOf(cause(null, 1))).toBeNull();
});

test("outcomes are added up by queue", () => {
  const first = { moved: 2, kept: 1, unmatched: 0, to: { a: 2 }, last_slot: "7" };
  const second = { moved: 3, kept: 0, unmatched: 4, to: { a: 1, b: 2 }, last_slot: "9" };
  expect(added(added(NOBODY, first), second)).toEqual({ moved: 5, kept: 1, unmatched: 4, to: { a: 3, b: 2 }, last_slot: "9" });
});

test("reasons are told in words", () => {
  expect(reasonText(null)).toContain("published here");
  expect(reasonText("maxlen")).toContain("length limit");
  expect(reasonText("something new")).toBe("something new");
});

import { expect, test } from "vitest";

import { byCause, causeOf, reasonText } from "../src/deadletters";
import type { Message } from "../src/types";

const message = (headers: Record<string, unknown>): Message => ({
  payload: "",
  payload_encoding: "string",
  payload_bytes: 0,
  exchange: "",
  routing_key: "",
  redelivered: false,
  properties: { headers },
});

const died = (queue: string, reason: string, time: number) => message({ "x-first-death-queue": queue, "x-first-death-reason": reason, "x-first-death-exchange": "x", "x-death": [{ queue, reason, time }] });

test("dead letters with the same cause are told together, the most first", () => {
  const causes = byCause([died("a", "rejected", 20), died("b", "expired", 5), died("a", "rejected", 10)]);
  expect(causes.map(({ queue, reason, amount, oldest, newest }) => [queue, reason, amount, oldest, newest])).toEqual([
    ["a", "rejected", 2, 10_000, 20_000],
    ["b", "expired", 1, 5000, 5000],
  ]);
});

test("the first death counts, which is the last in the list", () => {
  const cause = causeOf(message({ "x-death": [{ queue: "late", reason: "expired", time: 9 }, { queue: "early", reason: "maxlen", time: 3 }] }));
  expect(cause).toMatchObject({ queue: "early", reason: "maxlen", time: 9000 });
});

test("a message that never died is told as such", () => {
  expect(causeOf({ ...message({}), properties: [] }).reason).toBe("never died");
  expect(reasonText("maxlen")).toContain("length limit");
  expect(reasonText("something new")).toBe("something new");
});

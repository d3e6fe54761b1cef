import { expect, test } from "vitest";

import { cellText, columnsOf, headerNames, lastDeath } from "../src/messagecolumns";
import type { Message } from "../src/types";

function message(headers?: Record<string, unknown>): Message {
  return { payload: "", payload_bytes: 0, payload_encoding: "string", exchange: "", routing_key: "", redelivered: false, message_count: 0, properties: headers ? { headers } : [] } as unknown as Message;
}

test("headers of most messages come first, those with columns of their own not at all", () => {
  const messages = [message({ tenant: "a", b: 1 }), message({ tenant: "b", "x-death": [], "x-redriven": {} }), message()];
  expect(headerNames(messages)).toEqual(["tenant", "b"]);
});

test("a few are shown before anybody has chosen, then what was chosen", () => {
  const names = ["a", "b", "c", "d", "e"];
  expect(columnsOf(names, null)).toEqual(["a", "b", "c", "d"]);
  expect(columnsOf(names, ["e", "a", "gone"])).toEqual(["a", "e"]);
  expect(columnsOf(names, [])).toEqual([]);
  expect(columnsOf(["a", "x-first-death-queue", "x-last-death-reason"], null)).toEqual(["a"]);
});

test("cells are text whatever the value is", () => {
  expect([undefined, null, 0, false, "x", { a: 1 }].map(cellText)).toEqual(["", "", "0", "false", "x", '{"a":1}']);
});

test("the last death is told", () => {
  expect(lastDeath(message())).toBeNull();
  expect(lastDeath(message({ "x-death": [{ reason: "expired", queue: "q" }, { reason: "rejected" }] }))).toEqual({ reason: "expired", queue: "q" });
});

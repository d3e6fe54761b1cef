import { expect, test } from "vitest";

import { definitionOf, endOf, NEW_SHOVEL, type Shovel, toneOf } from "../src/shovels";

test("the form says no more than it has to", () => {
  expect(definitionOf({ ...NEW_SHOVEL, srcName: "a", destName: "b" })).toEqual({ "src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b" });
  const form = { ...NEW_SHOVEL, srcKind: "exchange" as const, srcName: "x", srcKey: "k.#", destKind: "exchange" as const, destName: "", destKey: "", ackMode: "no-ack", deleteAfter: "20" };
  expect(definitionOf(form)).toEqual({ "src-uri": "amqp://", "src-exchange": "x", "src-exchange-key": "k.#", "dest-uri": "amqp://", "dest-exchange": "", "ack-mode": "no-ack", "src-delete-after": 20 });
});

const shovel = (more: Partial<Shovel>): Shovel => ({ name: "s", vhost: "/", state: "running", ...more });

test("both ends are told in words", () => {
  const row = shovel({ src_queue: "a", src_uri: "amqp://", dest_exchange: "x", dest_exchange_key: "k", dest_uri: "amqp://far:5672/v" });
  expect(endOf(row, "src")).toEqual({ what: "queue a", where: "this cluster" });
  expect(endOf(row, "dest")).toEqual({ what: "exchange x, key k", where: "amqp://far:5672/v" });
  expect(endOf(shovel({}), "dest").what).toBe("as they were published");
});

test("what somebody has to look at stands out", () => {
  expect([shovel({}), shovel({ blocked_status: "blocked" }), shovel({ state: "paused" }), shovel({ state: "terminated" }), shovel({ state: "starting" })].map(toneOf)).toEqual(["good", "warn", "warn", "bad", "plain"]);
});

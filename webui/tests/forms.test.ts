import { expect, test } from "vitest";

import { summary } from "../src/definitions";
import { pairsOf, tableOf, typedValue } from "../src/parts/forms";

test("what looks like a number is one, and quotes make a text of it", () => {
  expect(["10", "1.5", "true", "null", '"10"', "[1,2]", '{"a":1}', "text", "10 apples", "{broken"].map(typedValue)).toEqual([10, 1.5, true, null, "10", [1, 2], { a: 1 }, "text", "10 apples", "{broken"]);
});

test("a table comes back as it was", () => {
  const table = { "ha-mode": "exactly", "ha-params": 2, "x-text": "2", nodes: ["a", "b"], on: true };
  expect(tableOf(pairsOf(table))).toEqual(table);
});

test("rows without a key do not count", () => {
  expect(tableOf([{ key: " ", value: "1" }, { key: " a ", value: "1" }])).toEqual({ a: 1 });
});

test("a file of definitions is told before it is sent", () => {
  expect(summary('{"rabbit_version":"3.13.7","users":[{}],"queues":[{},{}],"policies":[]}')).toEqual({
    parts: [
      ["users", 1],
      ["queues", 2],
    ],
    origin: "3.13.7",
  });
});

test("what is no file of definitions is refused with the reason", () => {
  expect(() => summary("{")).toThrow("not JSON");
  expect(() => summary("[]")).toThrow("holds no object");
  expect(() => summary("{}")).toThrow("no definitions");
});

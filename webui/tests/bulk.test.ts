import { expect, test } from "vitest";

import { inOrder, type Item, told } from "../src/bulk";

const item = (name: string, status: number): Item => ({ vhost: "/", name, status, reason: status < 300 ? null : "why" });

test("those that failed come first", () => {
  expect(inOrder([item("a", 204), item("b", 404), item("c", 204), item("d", 401)]).map(({ name }) => name)).toEqual(["b", "d", "a", "c"]);
});

test("there is nothing to read where all went well", () => {
  const outcome = { action: "purge", done: 1, failed: 0, items: [item("a", 204)] };
  expect(told(outcome, "purged")).toBeNull();
  expect(told({ ...outcome, failed: 1 }, "purged")).not.toBeNull();
});

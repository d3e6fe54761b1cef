import { expect, test } from "vitest";

import { killWords } from "../src/tryout";
import type { ClusterStatus } from "../src/types";

const status = (running: boolean[]): ClusterStatus => ({
  node: "n1@h",
  cluster_name: "c",
  app_running: true,
  nodes: running.map((isUp, i) => ({ name: `n${i + 1}@h`, running: isUp, type: "disc", role: "follower", version: "1" })),
  partitions: {},
  try_out: "warren cluster start {node}",
});

test("what the end of a node brings is told before", () => {
  expect(killWords("n2@h", status([true, true, true])).join(" ")).toContain("get another one");
  expect(killWords("n2@h", status([true, true, true]))).toHaveLength(2);
});

test("the last majority is named", () => {
  expect(killWords("n2@h", status([true, true, false])).join(" ")).toContain("Only 1 node of 3 would be left, which is no majority");
});

test("so is the node that shows the page", () => {
  expect(killWords("n1@h", status([true, true, true])).at(-1)).toContain("shows this page");
});

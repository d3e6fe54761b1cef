import { expect, test } from "vitest";

import { healthOf } from "../src/pages/overview";
import type { ClusterStatus, NodeInfo } from "../src/types";

const node = (name: string, more: Partial<NodeInfo> = {}): NodeInfo => ({ name, running: true, ...more });
const status = (partitions: Record<string, string[]> = {}): ClusterStatus => ({ node: "a@h", cluster_name: "c", app_running: true, nodes: [], partitions });
const mirrors = (behind: number, down: number) => ({ mirrored: 3, behind, down, examples: [] });

test("one sentence says that all is well", () => {
  expect(healthOf(status(), [node("a@h"), node("b@h")], mirrors(0, 0))).toEqual({ tone: "good", text: "2 of 2 nodes running, no alarms, no partitions; all mirrors of 3 mirrored queues in sync" });
  expect(healthOf(status(), null)).toBeNull();
});

test("... or what is not", () => {
  const found = healthOf(status({ "a@h": ["b@h"] }), [node("a@h", { mem_alarm: true }), node("b@h", { running: false })], mirrors(1, 1))!;
  expect(found.tone).toBe("bad");
  for (const words of ["1 of 2 nodes", "b is down", "a does not see b", "memory is short on a", "1 mirrored queue without a master", "1 mirrored queue with mirrors that are behind"]) expect(found.text).toContain(words);
});

test("mirrors that are behind are a warning", () => {
  expect(healthOf(status(), [node("a@h")], mirrors(2, 0))!.tone).toBe("warn");
});

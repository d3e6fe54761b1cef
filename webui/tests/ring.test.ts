import { expect, test } from "vitest";

import { asMirrors, boundsOf, draw, fallbackExplanation, inOrder, lagDetail, syncText } from "../src/ring";
import type { Replica } from "../src/types";

const replica = (node: string, role: string, more: Partial<Replica> = {}): Replica => ({ node, role, synchronised: true, online: true, lag_messages: 0, ...more });
const ring = [replica("n3", "learner", { synchronised: false }), replica("n2", "mirror", { lag_messages: 12 }), replica("n1", "master")];

test("the master comes first, learners last, mirrors stay in their order", () => {
  expect(inOrder([...ring, replica("n0", "mirror")]).map((each) => each.node)).toEqual(["n1", "n2", "n0", "n3"]);
});

test("all stand on the circle, the master at the top", () => {
  const { spots } = draw(ring, 200, 100, 30);
  expect(spots[0]).toMatchObject({ x: 200, y: 100 });
  for (const { x, y } of spots) expect(Math.hypot(x - 200, y - 200)).toBeCloseTo(100);
});

test("hops go round, say how far the next one is behind, and the last brings the answer", () => {
  const { hops } = draw(ring, 200, 100, 30);
  expect(hops.map(({ from, to, label }) => [from, to, label])).toEqual([
    ["n1", "n2", "12 behind"],
    ["n2", "n3", "lacks messages"],
    ["n3", "n1", "acknowledged"],
  ]);
});

test("a hop tells its lag in bytes and time, too, where that is known", () => {
  const late = { lag_messages: 12, lag_bytes: 3482, lag_seconds: 0.015 };
  const { hops } = draw([replica("n1", "master"), replica("n2", "mirror", late), replica("n3", "mirror")], 200, 100, 30);
  expect(hops.map(({ label, detail }) => [label, detail])).toEqual([
    ["12 behind", "3.4 KiB, 15 ms"],
    ["no lag", ""],
    ["acknowledged", ""],
  ]);
  expect(lagDetail(replica("n2", "mirror", { ...late, lag_bytes: null, lag_seconds: null }))).toBe("");
  expect(lagDetail(replica("n2", "learner", { ...late, synchronised: false, lag_seconds: 75 }))).toBe("12 behind, 3.4 KiB, 1 min 15 s");
});

test("two lines have room on the picture", () => {
  const ofLag = (lag: number | undefined) => {
    const { spots, hops } = draw([replica("n1", "master"), replica("n2", "mirror", { lag_messages: lag, lag_bytes: lag, lag_seconds: lag })], 200, 100, 30);
    return boundsOf(spots, hops, 30);
  };
  expect(ofLag(7).width).toBeGreaterThanOrEqual(ofLag(0).width);
});

test("hops to a node that is down are broken", () => {
  const { hops } = draw([replica("n1", "master"), replica("n2", "mirror", { online: false })], 200, 100, 30);
  expect(hops.map((hop) => [hop.isBroken, hop.label])).toEqual([
    [true, "broken"],
    [true, "broken"],
  ]);
});

test("the two hops of a ring of two do not lie upon each other", () => {
  const { hops } = draw([replica("n1", "master"), replica("n2", "mirror")], 200, 100, 30);
  expect(hops[0]!.x).not.toBeCloseTo(hops[1]!.x);
});

test("one copy stands in the middle and has no hops", () => {
  expect(draw([replica("n1", "master")], 200, 100, 30)).toMatchObject({ spots: [{ x: 200, y: 200 }], hops: [] });
  expect(draw([], 200, 100, 30)).toEqual({ spots: [], hops: [] });
});

test("a bare list of copies is understood as well", () => {
  expect(asMirrors([replica("n1", "master")])).toMatchObject({ master: "n1", replicas: [{ node: "n1" }] });
});

test("who becomes master is told where the node does not say", () => {
  expect(fallbackExplanation({ master: "n1", replicas: ring })[0]).toContain("n2 becomes master");
  expect(fallbackExplanation({ master: "n1", replicas: [ring[2]!, ring[0]!] })[0]).toContain("waits for n1");
  expect(fallbackExplanation({ master: "n1", replicas: [ring[2]!] })[0]).toContain("one copy only");
});

test("a synchronisation is told with its speed and end", () => {
  expect(syncText({ done: 500, total: 2000, messages_per_second: 250, eta_seconds: 6 })).toBe("500 of 2,000 messages, 250/s, 6 s to go");
  expect(syncText({ done: 0, total: 10, eta_seconds: null })).toBe("0 of 10 messages");
});

test("a hop to a mirror that is filled says how far that is", () => {
  const { hops } = draw([replica("n1", "master"), replica("n2", "learner", { synchronised: false, sync: { done: 459, total: 1000 } })], 200, 100, 30);
  expect(hops[0]!.label).toBe("45 % copied");
});

test("a hop to a mirror that nobody fills says how much it lacks", () => {
  const lacking = replica("n2", "learner", { synchronised: false, lacks_messages: 18_583 });
  expect(draw([replica("n1", "master"), lacking], 200, 100, 30).hops[0]!.label).toBe("lacks 18,583");
});

test("no more ground is shown than is drawn on, and all of that", () => {
  const { spots, hops } = draw(ring, 200, 100, 30);
  const box = boundsOf(spots, hops, 30);
  for (const { x, y } of [...spots, ...hops]) {
    expect(x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height).toBe(true);
  }
  expect(boundsOf(draw([replica("n1", "master")], 200, 100, 30).spots, [], 30)).toEqual({ x: 158, y: 158, width: 84, height: 84 });
});

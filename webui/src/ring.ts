// Where the replicas of a queue stand on the picture of its ring, and what its hops say.

import { bytes, count, duration, percent } from "./format";
import type { Mirrors, Replica, Sync } from "./types";

export interface Spot {
  replica: Replica;
  x: number;
  y: number;
}

export interface Hop {
  from: string;
  to: string;
  path: string;
  label: string;
  /** A second line: the lag in bytes and time. */
  detail: string;
  x: number;
  y: number;
  /** To which side of its place the label goes: away from the ring. */
  anchor: "start" | "middle" | "end";
  isBroken: boolean;
}

export interface Drawing {
  spots: Spot[];
  hops: Hop[];
}

/** How far from its hop a label begins. */
const LABEL_OFF = 24;
/** From one line of a label to the next. */
export const LINE = 15;

/** Master first, mirrors in their order, learners after them. */
export function inOrder(replicas: Replica[]): Replica[] {
  const rank = (replica: Replica) => (replica.role === "master" ? 0 : replica.role === "learner" ? 2 : 1);
  return replicas
    .map((replica, i) => ({ replica, i }))
    .sort((a, b) => rank(a.replica) - rank(b.replica) || a.i - b.i)
    .map(({ replica }) => replica);
}

/** Spots on a circle, the master at the top, going with the clock; arrows follow the ring. */
export function draw(replicas: Replica[], center: number, radius: number, size: number): Drawing {
  const ordered = inOrder(replicas);
  if (ordered.length === 1) return { spots: [{ replica: ordered[0]!, x: center, y: center }], hops: [] };
  const spots = ordered.map((replica, i) => {
    const angle = (2 * Math.PI * i) / ordered.length - Math.PI / 2;
    return { replica, x: center + radius * Math.cos(angle), y: center + radius * Math.sin(angle) };
  });
  const hops = spots.map((from, i) => hop(from, spots[(i + 1) % spots.length]!, center, size, i === spots.length - 1, spots.length === 2));
  return { spots, hops };
}

function hop(from: Spot, to: Spot, center: number, size: number, isLast: boolean, isOfTwo: boolean): Hop {
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const length = Math.hypot(dx, dy) || 1;
  // Bent outwards, so that the two hops of a ring of two do not lie upon each other.
  const [nx, ny] = [dy / length, -dx / length];
  // With two, wide enough for what stands in the middle.
  const bend = length * (isOfTwo ? 0.75 : 0.22);
  const [mx, my] = [(from.x + to.x) / 2 + nx * bend, (from.y + to.y) / 2 + ny * bend];
  const start = towards(from, { x: mx, y: my }, size + 4);
  const end = towards(to, { x: mx, y: my }, size + 10);
  // The curve itself is half as far out as what it is bent towards.
  const [cx, cy] = [((from.x + to.x) / 2 + mx) / 2, ((from.y + to.y) / 2 + my) / 2];
  const out = Math.hypot(cx - center, cy - center) || 1;
  const aside = (cx - center) / out;
  const isBroken = from.replica.online === false || to.replica.online === false;
  return {
    from: from.replica.node,
    to: to.replica.node,
    path: `M${round(start.x)} ${round(start.y)} Q${round(mx)} ${round(my)} ${round(end.x)} ${round(end.y)}`,
    // The last hop brings the word back.
    label: isBroken ? "broken" : isLast ? "acknowledged" : lagText(to.replica),
    detail: isBroken || isLast ? "" : lagDetail(to.replica),
    x: round(cx + aside * LABEL_OFF),
    y: round(cy + ((cy - center) / out) * LABEL_OFF),
    anchor: aside > 0.3 ? "start" : aside < -0.3 ? "end" : "middle",
    isBroken,
  };
}

function lagText({ sync, synchronised, lacks_messages: lacks, lag_messages: lag }: Replica): string {
  if (sync) return `${Math.floor(percent(sync.done, sync.total))} % copied`;
  if (!synchronised) return `lacks ${lacks ? count(lacks) : "messages"}`;
  return lag ? `${count(lag)} behind` : "no lag";
}

/** What the lag of a replica is in bytes and time, if it has one; learners tell how many operations it is, too. */
export function lagDetail({ sync, synchronised, lag_messages: lag, lag_bytes: size, lag_seconds: seconds }: Replica): string {
  if (!lag) return "";
  const parts = sync || !synchronised ? [`${count(lag)} behind`] : [];
  if (size !== null && size !== undefined) parts.push(bytes(size));
  if (seconds !== null && seconds !== undefined) parts.push(duration(seconds * 1000));
  return parts.join(", ");
}

/** The part of the ground that is drawn on. */
export function boundsOf(spots: Spot[], hops: Hop[], size: number): { x: number; y: number; width: number; height: number } {
  const edge = size + 12;
  // The room that a label takes.
  const [wide, high] = [92, 12];
  const deep = (detail: string) => (detail ? high + LINE : high);
  const ends = { start: [0, wide], middle: [-wide / 2, wide / 2], end: [-wide, 0] };
  const xs = [...spots.flatMap(({ x }) => [x - edge, x + edge]), ...hops.flatMap(({ x, anchor, detail }) => ends[anchor].map((off) => x + off * (detail.length > 16 ? 1.5 : 1)))];
  const ys = [...spots.flatMap(({ y }) => [y - edge, y + edge]), ...hops.flatMap(({ y, detail }) => [y - high, y + deep(detail)])];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return { x: round(left), y: round(top), width: round(Math.max(...xs) - left), height: round(Math.max(...ys) - top) };
}

function towards(from: { x: number; y: number }, to: { x: number; y: number }, distance: number): { x: number; y: number } {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  return { x: from.x + ((to.x - from.x) * distance) / length, y: from.y + ((to.y - from.y) * distance) / length };
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}

/** The contract's object, or what an older node gives: a bare list of replicas. */
export function asMirrors(answer: Mirrors | Replica[]): Mirrors {
  if (!Array.isArray(answer)) return { ...answer, replicas: answer.replicas ?? [] };
  return { state: "running", master: answer.find((replica) => replica.role === "master")?.node ?? null, replicas: answer };
}

export function syncText(sync: Sync): string {
  const parts = [`${count(sync.done)} of ${count(sync.total)} messages`];
  if (sync.messages_per_second) parts.push(`${count(Math.round(sync.messages_per_second))}/s`);
  if (sync.bytes_per_second) parts.push(`${bytes(Math.round(sync.bytes_per_second))}/s`);
  if (sync.eta_seconds !== null && sync.eta_seconds !== undefined) parts.push(`${duration(sync.eta_seconds * 1000)} to go`);
  return parts.join(", ");
}

/** What can be said where the node explains nothing itself. */
export function fallbackExplanation(mirrors: Mirrors): string[] {
  const heirs = inOrder(mirrors.replicas).filter((replica) => replica.role !== "master" && replica.synchronised && replica.online !== false);
  if (mirrors.replicas.length < 2) return [`There is one copy only, on ${mirrors.master ?? "no node"}: if that node dies, the queue waits until it is back.`];
  if (heirs.length === 0) return [`If ${mirrors.master} dies now: no mirror is in sync, the queue waits for ${mirrors.master} to come back.`];
  return [`If ${mirrors.master} dies now: ${heirs[0]!.node} becomes master.`];
}

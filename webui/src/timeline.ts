// What happened to the nodes, as lanes over time.

import { bytes, count, duration, plural, shortNode } from "./format";
import type { ClusterEvent } from "./types";

export interface Span {
  from: number;
  /** null: it still lasts. */
  to: number | null;
}

export interface Mark {
  at: number;
  event: ClusterEvent;
}

/** A copy of a queue on its way to the node of the lane. */
export interface Copy extends Span {
  name: string;
  vhost: string;
  /** How it ended, when it has. */
  how: string | null;
}

export interface Lane {
  node: string;
  down: Span[];
  copies: Copy[];
  marks: Mark[];
}

/** How the names of the events begin that the timeline shows. */
export const NAMES = ["node.", "cluster.", "link.", "mirror.", "queue.master", "queue.promoted", "queue.mirror", "queue.sync", "queue.damaged", "queue.mended", "queue.fork", "queue.salvaged", "queue.republished", "queue.returned", "queue.paused", "queue.resumed", "rebalance.", "policy.", "alarm.", "vhost.", "shovel."];

/** What only the node says that it happened to; it is asked for at all nodes. */
export const OWN_NAMES = ["queue.promoted", "queue.sync", "queue.salvaged", "queue.republished", "queue.returned", "queue.damaged", "queue.mended", "queue.fork", "alarm.", "shovel."];

/** The node an event is about; the one that was asked, when it names none. */
export function nodeOf(event: ClusterEvent, asked: string): string {
  const { node, to, master } = event.details as { node?: string; to?: string; master?: string };
  return node ?? to ?? master ?? event.seen_by ?? asked;
}

export function lanes(events: ClusterEvent[], nodes: string[], asked: string): Lane[] {
  const found = new Map<string, Lane>(nodes.map((node) => [node, { node, down: [], copies: [], marks: [] }]));
  for (const event of events) {
    const node = nodeOf(event, asked);
    const lane = found.get(node) ?? { node, down: [], copies: [], marks: [] };
    found.set(node, lane);
    if (copied(lane, event)) continue;
    if (event.event === "node.down") endCopies(lane, event.timestamp);
    lane.marks.push({ at: event.timestamp, event });
    const open = lane.down.at(-1);
    if (event.event === "node.down" && (!open || open.to !== null)) lane.down.push({ from: event.timestamp, to: null });
    if ((event.event === "node.up" || event.event === "node.registered") && open && open.to === null) open.to = event.timestamp;
  }
  return [...found.values()];
}

/** Whether anything of a lane is to be seen from a time on. */
export function isBusy(lane: Lane, from: number): boolean {
  const lasts = ({ to }: Span) => to === null || to > from;
  return lane.down.some(lasts) || lane.copies.some(lasts) || lane.marks.some((mark) => mark.at >= from);
}

/** Whether the event is about a copy to the lane's node: that is a bar, not a mark. */
function copied(lane: Lane, { event, details, timestamp }: ClusterEvent): boolean {
  if (event !== "queue.sync_started" && event !== "queue.sync_ended") return false;
  const { name, vhost, how } = details as { name: string; vhost: string; how?: string };
  const open = lane.copies.find((copy) => copy.to === null && copy.name === name && copy.vhost === vhost);
  if (open) Object.assign(open, { to: timestamp, how: how ?? "interrupted" });
  if (event === "queue.sync_started") lane.copies.push({ from: timestamp, to: null, name, vhost, how: null });
  return true;
}

/** Who is down gets nothing any more. */
function endCopies(lane: Lane, at: number): void {
  for (const copy of lane.copies) if (copy.to === null) Object.assign(copy, { to: at, how: "interrupted" });
}

/** What is told as one line: the same, many times, of one node at about the same time. */
export interface Group {
  first: ClusterEvent;
  events: ClusterEvent[];
}

const TOGETHER_MS = 5000;

/** Events, newest first; a failover of a thousand queues is one line. */
export function grouped(events: ClusterEvent[]): Group[] {
  const found: Group[] = [];
  for (const event of [...events].reverse()) {
    const last = found.findLast((group) => group.first.event === event.event && group.first.seen_by === event.seen_by);
    const isNear = last !== undefined && last.events.at(-1)!.timestamp - event.timestamp < TOGETHER_MS;
    if (isNear && event.event.startsWith("queue.")) last.events.push(event);
    else found.push({ first: event, events: [event] });
  }
  return found;
}

const WORDS: Record<string, (d: Record<string, unknown>) => string> = {
  "node.down": (d) => `${d.node} is down`,
  "node.up": (d) => `${d.node} is back`,
  "node.registered": (d) => `${d.node} has started`,
  "node.forgotten": (d) => `${d.node} was taken out of the cluster`,
  "cluster.leader": (d) => `${d.node} leads the metadata (term ${d.term})`,
  "cluster.ready": () => "a majority can be reached: clients are let in",
  "cluster.no_majority": () => "no majority can be reached",
  "link.up": (d) => `link to ${d.node} is up`,
  "link.down": (d) => `link to ${d.node} is lost`,
  "queue.promoted": promoted,
  "queue.paused": (d) => `the consumers of queue ${d.name} in ${d.vhost} were paused by ${d.by}`,
  "queue.resumed": (d) => `the consumers of queue ${d.name} in ${d.vhost} go on`,
  "shovel.paused": (d) => `shovel ${d.name} in ${d.vhost} was paused by ${d.by}`,
  "shovel.resumed": (d) => `shovel ${d.name} in ${d.vhost} was resumed by ${d.by}`,
  "queue.promoted_unclean": (d) => `queue ${d.name} in ${d.vhost}: a mirror that was not in sync became master`,
  "queue.salvaged": (d) => `queue ${d.name} in ${d.vhost}: ${d.messages ?? "some"} messages that others do not have were put aside`,
  "queue.republished": (d) => `queue ${d.name} in ${d.vhost}: ${d.messages} messages that had been put aside are back`,
  "queue.sync_started": (d) => `queue ${d.name} in ${d.vhost} is being copied to ${d.node}`,
  "queue.sync_ended": (d) => `queue ${d.name} in ${d.vhost}: the copy to ${d.node} ${COPY_ENDS[String(d.how)] ?? "ended"}, ${bytes(d.bytes as number)} in ${duration(d.took_ms as number)}`,
  "queue.synchronised": (d) => `queue ${d.name} in ${d.vhost}: ${d.node} is in sync`,
  "queue.unsynchronised": (d) => `queue ${d.name} in ${d.vhost}: ${d.node} is out of sync, for ${d.cause}`,
  "queue.copying_hours_begin": (d) => `queue ${d.name} in ${d.vhost}: its hours of copies begin`,
  "queue.copying_hours_end": (d) => `queue ${d.name} in ${d.vhost}: its hours of copies are over, it is not protected`,
  "rebalance.started": (d) => `masters are being spread over the nodes: ${d.planned} are to move`,
  "rebalance.ended": (d) => `masters were spread over the nodes: ${d.moved} moved, ${d.failed} did not`,
  "queue.damaged": (d) => `queue ${d.name} in ${d.vhost} was damaged on disk: ${d.what}`,
  "queue.mended": (d) => `queue ${d.name} in ${d.vhost}: a message that could not be read came from ${d.node}`,
  "queue.fork_opened": (d) => `queue ${d.name} in ${d.vhost} is served by a fork, ${d.fork}, until the partition ends`,
  "queue.fork_closed": (d) => `queue ${d.name} in ${d.vhost}: its fork ${d.fork} is to be merged`,
  "queue.fork_merged": (d) => `queue ${d.name} in ${d.vhost}: its fork is merged, ${d.messages} messages brought back, ${d.acknowledged} acknowledged there${d.unreadable ? `, ${d.unreadable} cannot be read` : ""}`,
  "policy.set": (d) => `policy ${d.name} was set in ${d.vhost}`,
  "policy.cleared": (d) => `policy ${d.name} was removed from ${d.vhost}`,
  "vhost.created": (d) => `virtual host ${d.name} was made`,
  "vhost.deleted": (d) => `virtual host ${d.name} was deleted`,
  "alarm.set": (d) => `${d.resource} is short: publishers wait`,
  "alarm.cleared": (d) => `${d.resource} is no longer short`,
};

const COPY_ENDS: Record<string, string> = { done: "is complete", cancelled: "was cancelled", interrupted: "was interrupted" };

interface Promotion {
  name?: string;
  vhost?: string;
  epoch?: number;
  node?: string;
  from?: string | null;
  cause?: string;
  took_ms?: number;
  dropped?: number | null;
  redelivered?: number | null;
  /** What `withLosses` has found in later events, where `dropped` is null. */
  returned?: Return;
}

/** A node that was away said how much it had that the new master lacked. */
interface Return {
  node: string;
  messages: number;
  /** No more than so many: it could not tell them from what both have. */
  upto: boolean;
}

/** Promotions know what they cost when the old master is back: its word is put to them, and stands there alone. */
export function withLosses(events: ClusterEvent[]): ClusterEvent[] {
  const returns = events.filter((event) => event.event === "queue.returned").map((event) => event.details as unknown as Return & Promotion);
  return events
    .filter((event) => event.event !== "queue.returned")
    .map((event) => {
      const d = event.details as Promotion;
      if (event.event !== "queue.promoted" || d.dropped !== null) return event;
      const told = returns.filter((each) => each.name === d.name && each.vhost === d.vhost && (each.epoch ?? 0) >= (d.epoch ?? 0) && (!d.from || each.node === d.from));
      if (told.length === 0) return event;
      // A link that comes and goes has it told again, when nothing is left to tell.
      const { node, messages, upto } = told.reduce((most, each) => (each.messages > most.messages ? each : most));
      return { ...event, details: { ...event.details, returned: { node, messages, upto } } };
    });
}

const CAUSES: Record<string, string> = { handover: "handed over", failure: "failover", unclean: "failover to a mirror that was not in sync", policy: "moved by a policy", return: "back after it was down" };

/** Who followed whom, why, how long nobody served, and what it cost. */
function promoted(details: Record<string, unknown>): string {
  const d = details as Promotion;
  const queue = `queue ${d.name} in ${d.vhost}`;
  // An event of an earlier version says no more.
  if (d.cause === undefined) return `${queue} got a new master (epoch ${d.epoch})`;
  const who = d.from && d.from !== d.node ? `${shortNode(d.from)} → ${shortNode(d.node ?? "")}` : `${shortNode(d.node ?? "")} is master`;
  return `${queue}: ${who}, ${CAUSES[d.cause] ?? d.cause}, took ${duration(d.took_ms)}${cost(d)}`;
}

function cost(d: Promotion): string {
  return d.cause === "handover" ? "" : `, ${lost(d)}, ${count(d.redelivered ?? 0)} redelivered`;
}

function lost(d: Promotion): string {
  if (d.dropped !== null) return `${plural(d.dropped ?? 0, "message")} dropped`;
  if (!d.returned) return `how many messages were dropped is not known until ${d.from ? shortNode(d.from) : "the old master"} is back`;
  const { node, messages, upto } = d.returned;
  return `${upto && messages ? "at most " : ""}${plural(messages, "message")} dropped${messages ? `, put aside on ${shortNode(node)}` : ""}`;
}

/** Of many queues at once: the longest, and all that goes out again. */
function promotedTogether(events: ClusterEvent[]): string {
  const all = events.map((event) => event.details as Promotion).filter((d) => d.cause !== undefined);
  if (all.length < 2) return "";
  const again = all.reduce((sum, d) => sum + (d.redelivered ?? 0), 0);
  const dropped = all.reduce((sum, d) => sum + (d.dropped ?? d.returned?.messages ?? 0), 0);
  const unknown = all.filter((d) => d.dropped === null && !d.returned).length;
  const rest = unknown ? `, ${plural(unknown, "queue")} not known yet` : "";
  return `: at most ${duration(Math.max(...all.map((d) => d.took_ms ?? 0)))}, ${count(dropped)} dropped${rest}, ${count(again)} redelivered in all`;
}

export function groupWording({ first, events }: Group): string {
  const all = wordingOfMany(first, events);
  return first.event === "queue.promoted" ? all + promotedTogether(events) : all;
}

function wordingOfMany(first: ClusterEvent, events: ClusterEvent[]): string {
  return events.length === 1 ? wording(first) : `${wording(first)}; and so for ${plural(events.length - 1, first.event.startsWith("queue.sync") ? "other copy" : "other queue", first.event.startsWith("queue.sync") ? "other copies" : "other queues")}`;
}

export function wording(event: ClusterEvent): string {
  const words = WORDS[event.event];
  if (words) return words(event.details);
  const details = Object.entries(event.details)
    .map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
  return details ? `${event.event}: ${details}` : event.event;
}

export function toneOf(event: ClusterEvent): "good" | "bad" | "warn" | "plain" {
  const name = event.event;
  if (/down$|no_majority|alarm\.set|damaged|salvaged|unclean/.test(name)) return "bad";
  if (/up$|ready|registered|alarm\.cleared|republished|rebalance\.ended|queue\.synchronised/.test(name)) return "good";
  if (name === "queue.sync_ended") return event.details.how === "done" ? "good" : "warn";
  if (name === "queue.sync_started") return "plain";
  if (/leader|master|promoted|forgotten|sync|paused/.test(name)) return "warn";
  return "plain";
}

/** Tells an event from all others, whichever node counts it. */
export const keyOf = (event: ClusterEvent): string => `${event.seen_by ?? ""} ${event.id}`;

/** Events without twins, the newest last and no more than so many. */
export function joined(before: ClusterEvent[], news: ClusterEvent[], most: number): ClusterEvent[] {
  const byKey = new Map(before.map((event) => [keyOf(event), event]));
  for (const event of news) byKey.set(keyOf(event), event);
  return [...byKey.values()].sort((a, b) => a.timestamp - b.timestamp || a.id - b.id).slice(-most);
}

// What happened to the nodes, as lanes over time.

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

export interface Lane {
  node: string;
  down: Span[];
  marks: Mark[];
}

/** How the names of the events begin that the timeline shows. */
export const NAMES = ["node.", "cluster.", "link.", "mirror.", "queue.master", "queue.promoted", "queue.mirror", "queue.sync", "queue.damaged", "queue.salvaged", "policy.", "alarm.", "vhost.", "shovel."];

/** What only the node says that it happened to; it is asked for at all nodes. */
export const OWN_NAMES = ["queue.promoted", "queue.salvaged", "queue.damaged", "alarm."];

/** The node an event is about; the one that was asked, when it names none. */
export function nodeOf(event: ClusterEvent, asked: string): string {
  const { node, to, master } = event.details as { node?: string; to?: string; master?: string };
  return node ?? to ?? master ?? event.seen_by ?? asked;
}

export function lanes(events: ClusterEvent[], nodes: string[], asked: string): Lane[] {
  const found = new Map<string, Lane>(nodes.map((node) => [node, { node, down: [], marks: [] }]));
  for (const event of events) {
    const node = nodeOf(event, asked);
    const lane = found.get(node) ?? { node, down: [], marks: [] };
    found.set(node, lane);
    lane.marks.push({ at: event.timestamp, event });
    const open = lane.down.at(-1);
    if (event.event === "node.down" && (!open || open.to !== null)) lane.down.push({ from: event.timestamp, to: null });
    if ((event.event === "node.up" || event.event === "node.registered") && open && open.to === null) open.to = event.timestamp;
  }
  return [...found.values()];
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
  "queue.promoted": (d) => `queue ${d.name} in ${d.vhost} got a new master (epoch ${d.epoch})`,
  "queue.promoted_unclean": (d) => `queue ${d.name} in ${d.vhost}: a mirror that was not in sync became master`,
  "queue.salvaged": (d) => `queue ${d.name} in ${d.vhost}: operations that others do not have were put aside`,
  "queue.damaged": (d) => `queue ${d.name} in ${d.vhost} was damaged on disk: ${d.what}`,
  "policy.set": (d) => `policy ${d.name} was set in ${d.vhost}`,
  "policy.cleared": (d) => `policy ${d.name} was removed from ${d.vhost}`,
  "vhost.created": (d) => `virtual host ${d.name} was made`,
  "vhost.deleted": (d) => `virtual host ${d.name} was deleted`,
  "alarm.set": (d) => `${d.resource} is short: publishers wait`,
  "alarm.cleared": (d) => `${d.resource} is no longer short`,
};

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
  if (/up$|ready|registered|alarm\.cleared|synchronised|synced/.test(name)) return "good";
  if (/leader|master|promoted|forgotten|sync/.test(name)) return "warn";
  return "plain";
}

const key = (event: ClusterEvent) => `${event.seen_by ?? ""} ${event.id}`;

/** Events without twins, the newest last and no more than so many. */
export function joined(before: ClusterEvent[], news: ClusterEvent[], most: number): ClusterEvent[] {
  const byKey = new Map(before.map((event) => [key(event), event]));
  for (const event of news) byKey.set(key(event), event);
  return [...byKey.values()].sort((a, b) => a.timestamp - b.timestamp || a.id - b.id).slice(-most);
}

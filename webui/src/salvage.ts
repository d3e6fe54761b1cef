// What nodes have put aside: pieces of logs, and messages that the cluster has gone on without.

import { bytes, plural } from "./format";
import type { Message } from "./types";

export interface Piece {
  node: string;
  file: string;
  folder: string;
  bytes: number;
  reason: string;
  time: string;
  /** Of a piece of a log. */
  segment?: string;
  offset?: number;
  /** Of messages that were cut off. */
  vhost?: string;
  queue?: string;
  messages?: number;
}

export function whatIsIn(piece: Piece): string {
  if (piece.messages === undefined) return `${bytes(piece.bytes)} of a log`;
  return `${plural(piece.messages, "message")} of ${piece.queue}`;
}

/** A message of an export: what `warrenctl salvage export` writes. */
export function lineOf(message: Message): string {
  return JSON.stringify(message);
}

// Dead letters by cause, as nodes count them: an answer at a time, until a queue has been gone through.

import type { Message } from "./types";

export interface Cause {
  reason: string | null;
  queue: string | null;
  exchange: string | null;
  messages: number;
  bytes: number;
  oldest: number | null;
  newest: number | null;
  example: Message;
}

export interface CauseAnswer {
  causes: Cause[];
  looked_at: number;
  /** Of causes that had no room in the answer. */
  untold: number;
  is_over: boolean;
  last_slot: string | null;
  messages_ready: number;
}

export interface Counted {
  causes: Cause[];
  lookedAt: number;
  untold: number;
  isOver: boolean;
}

export const NOTHING: Counted = { causes: [], lookedAt: 0, untold: 0, isOver: false };

const keyOf = ({ reason, queue, exchange }: Cause) => JSON.stringify([reason, queue, exchange]);

function earliest(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.min(a, b);
}

function latest(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.max(a, b);
}

/** What is known with one more answer. */
export function counted(before: Counted, answer: CauseAnswer): Counted {
  const found = new Map(before.causes.map((cause) => [keyOf(cause), cause]));
  for (const cause of answer.causes) {
    const known = found.get(keyOf(cause));
    found.set(
      keyOf(cause),
      known
        ? { ...known, messages: known.messages + cause.messages, bytes: known.bytes + cause.bytes, oldest: earliest(known.oldest, cause.oldest), newest: latest(known.newest, cause.newest) }
        : cause,
    );
  }
  const causes = [...found.values()].sort((a, b) => b.messages - a.messages || (a.queue ?? "").localeCompare(b.queue ?? ""));
  return { causes, lookedAt: before.lookedAt + answer.looked_at, untold: before.untold + answer.untold, isOver: answer.is_over || answer.looked_at === 0 };
}

/** A pattern that nothing but this text fits. */
export function literal(text: string): string {
  return text.replace(/[[*?]/g, "[$&]");
}

/** What tells the messages of a cause; null for one whose messages say nothing of a death. */
export function matchOf({ reason, queue, exchange }: Cause): Record<string, string> | null {
  if (reason === null || queue === null) return null;
  return { reason: literal(reason), queue: literal(queue), ...(exchange === null ? {} : { published_to: literal(exchange) }) };
}

export interface Outcome {
  moved: number;
  kept: number;
  unmatched: number;
  to: Record<string, number>;
  last_slot: string | null;
}

export const NOBODY: Outcome = { moved: 0, kept: 0, unmatched: 0, to: {}, last_slot: null };

export function added(a: Outcome, b: Outcome): Outcome {
  const to = { ...a.to };
  for (const [name, amount] of Object.entries(b.to)) to[name] = (to[name] ?? 0) + amount;
  return { moved: a.moved + b.moved, kept: a.kept + b.kept, unmatched: a.unmatched + b.unmatched, to, last_slot: b.last_slot };
}

const REASONS: Record<string, string> = {
  rejected: "rejected by a consumer",
  expired: "expired before anyone took it",
  maxlen: "pushed out by the queue's length limit",
  delivery_limit: "delivered too often",
};

export function reasonText(reason: string | null): string {
  return reason === null ? "no dead letter: published here" : (REASONS[reason] ?? reason);
}

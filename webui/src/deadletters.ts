// Dead letters by their cause, out of the headers that the broker puts on them.

import type { Message } from "./types";

export interface Cause {
  reason: string;
  queue: string;
  exchange: string;
  /** How many of those that were looked at. */
  amount: number;
  oldest: number | null;
  newest: number | null;
  example: Message;
}

interface Death {
  reason?: string;
  queue?: string;
  exchange?: string;
  time?: number;
}

export function headersOf(message: Message): Record<string, unknown> {
  const properties = Array.isArray(message.properties) ? {} : message.properties;
  return (properties.headers ?? {}) as Record<string, unknown>;
}

/** Why, where and when a message first died. */
export function causeOf(message: Message): { reason: string; queue: string; exchange: string; time: number | null } {
  const headers = headersOf(message);
  const deaths = Array.isArray(headers["x-death"]) ? (headers["x-death"] as Death[]) : [];
  const [last, first] = [deaths[0], deaths.at(-1)];
  return {
    reason: String(headers["x-first-death-reason"] ?? first?.reason ?? "never died"),
    queue: String(headers["x-first-death-queue"] ?? first?.queue ?? ""),
    exchange: String(headers["x-first-death-exchange"] ?? first?.exchange ?? ""),
    time: typeof last?.time === "number" ? last.time * 1000 : null,
  };
}

export function byCause(messages: Message[]): Cause[] {
  const found = new Map<string, Cause>();
  for (const message of messages) {
    const { reason, queue, exchange, time } = causeOf(message);
    const key = JSON.stringify([reason, queue, exchange]);
    const cause = found.get(key);
    if (!cause) {
      found.set(key, { reason, queue, exchange, amount: 1, oldest: time, newest: time, example: message });
      continue;
    }
    cause.amount += 1;
    if (time !== null) {
      cause.oldest = Math.min(cause.oldest ?? time, time);
      cause.newest = Math.max(cause.newest ?? time, time);
    }
  }
  return [...found.values()].sort((a, b) => b.amount - a.amount || a.queue.localeCompare(b.queue));
}

const REASONS: Record<string, string> = {
  rejected: "rejected by a consumer",
  expired: "expired before anyone took it",
  maxlen: "pushed out by the queue's length limit",
  delivery_limit: "delivered too often",
};

export function reasonText(reason: string): string {
  return REASONS[reason] ?? reason;
}

import type { Message } from "./types";

/** Told in columns of their own, or too long for one. */
const NOT_A_COLUMN = new Set(["x-death", "x-redriven"]);
/** As many are shown before anybody has chosen. */
const FIRST_COLUMNS = 4;

export function headersOf(message: Message): Record<string, unknown> {
  const properties = (Array.isArray(message.properties) ? {} : message.properties) as { headers?: Record<string, unknown> };
  return properties.headers ?? {};
}

/** The headers that some of these messages have, those of most messages first. */
export function headerNames(messages: Message[]): string[] {
  const counts = new Map<string, number>();
  for (const message of messages)
    for (const name of Object.keys(headersOf(message))) if (!NOT_A_COLUMN.has(name)) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1)).map(([name]) => name);
}

/** What is shown: what was chosen, as far as it is there; before that the most common ones. */
export function columnsOf(names: string[], chosen: string[] | null): string[] {
  if (chosen !== null) return names.filter((name) => chosen.includes(name));
  // How they died has a column of its own; what their publishers have said comes first.
  return names.filter((name) => !/^x-(first|last)-death-/.test(name)).slice(0, FIRST_COLUMNS);
}

export function cellText(value: unknown): string {
  if (value === undefined || value === null) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Of what it died last, and where; nothing for one that never did. */
export function lastDeath(message: Message): { reason: string; queue: string } | null {
  const deaths = headersOf(message)["x-death"];
  if (!Array.isArray(deaths) || deaths.length === 0) return null;
  const { reason, queue } = deaths[0] as { reason?: string; queue?: string };
  return { reason: reason ?? "died", queue: queue ?? "" };
}

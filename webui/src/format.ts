// Numbers, sizes and times as people read them.

const COUNT = new Intl.NumberFormat("en");

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : COUNT.format(value);
}

/** 1234567 as "1.23 M": for places where four digits are all there is room for. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const steps: [number, string][] = [
    [1e9, " G"],
    [1e6, " M"],
    [1e4, " k"],
  ];
  for (const [from, unit] of steps) {
    if (Math.abs(value) >= from) return digits(value / (from === 1e4 ? 1e3 : from)) + unit;
  }
  return digits(value);
}

function digits(value: number): string {
  const size = Math.abs(value);
  const places = size >= 100 || Number.isInteger(value) ? 0 : size >= 10 ? 1 : 2;
  return COUNT.format(Number(value.toFixed(places)));
}

export function rate(value: number | null | undefined): string {
  return value ? `${short(value)}/s` : "0/s";
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let left = value;
  let unit = 0;
  while (Math.abs(left) >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? left : digits(left)} ${units[unit]}`;
}

/** A length of time in its two largest units: "3 h 12 min". */
export function duration(milliseconds: number | null | undefined): string {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1000) return `${Math.max(0, Math.round(milliseconds))} ms`;
  const seconds = Math.round(milliseconds / 1000);
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(" ");
}

/** How long the oldest message of a queue has been in it; a queue without any has none. */
export function age(seconds: number | null | undefined, messages: number | undefined): string {
  if (seconds !== null && seconds !== undefined) return seconds < 1 ? "< 1 s" : duration(seconds * 1000);
  return messages ? "unknown" : "–";
}

export function ago(then: number, now: number = Date.now()): string {
  const passed = now - then;
  return passed < 2000 ? "now" : `${duration(passed)} ago`;
}

function two(value: number): string {
  return String(value).padStart(2, "0");
}

/** Local time of day, with the date when it is another day. */
export function clock(time: number, now: number = Date.now()): string {
  const at = new Date(time);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  if (at.toDateString() === new Date(now).toDateString()) return text;
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${text}`;
}

export function plural(amount: number, one: string, many: string = `${one}s`): string {
  return `${count(amount)} ${amount === 1 ? one : many}`;
}

export function percent(part: number, whole: number): number {
  return whole > 0 ? Math.min(100, Math.max(0, (100 * part) / whole)) : 0;
}

/** The part of a node's name that tells it from the others. */
export function shortNode(name: string): string {
  return name.split("@")[0] || name;
}

/** A word that a shell takes as one. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A request to the API as curl makes it, where there is no command of warrenctl's. */
export function curl(user: string, base: string, method: string, path: string, body?: unknown): string {
  const data = body === undefined ? "" : ` -d ${shellWord(JSON.stringify(body))}`;
  return `curl -u ${shellWord(user)} -X ${method} ${shellWord(`${base}api/${path}`)}${data}`;
}

const COMMANDS_MAX = 5;

/** Several commands as one paste; of very many, the first ones and a note. */
export function shellCommands(commands: string[]): string {
  const more = commands.length - COMMANDS_MAX;
  return [...commands.slice(0, COMMANDS_MAX), ...(more > 0 ? [`# ... and ${more} more`] : [])].join("\n");
}

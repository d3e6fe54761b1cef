// Requests to the node that served this page. A token in a header says who asks: browsers do not
// add it by themselves, so other sites cannot make them act here.

import { signal } from "@preact/signals";

import { curl } from "./format";

export interface User {
  name: string;
  tags: string[];
}

export interface Session extends User {
  token: string;
  endsAt: number;
}

export class ApiFailure extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const KEPT_AS = "warren.session";
export const session = signal<Session | null>(readSession());
/** The last session was ended by the node, not by its user. */
export const wasEnded = signal(false);
/** Set while the node does not answer at all. */
export const unreachable = signal<string | null>(null);

function readSession(): Session | null {
  try {
    const kept = JSON.parse(localStorage.getItem(KEPT_AS) ?? "null") as Session | null;
    return kept && kept.endsAt > Date.now() ? kept : null;
  } catch {
    return null;
  }
}

function keep(next: Session | null): void {
  session.value = next;
  if (next) localStorage.setItem(KEPT_AS, JSON.stringify(next));
  else localStorage.removeItem(KEPT_AS);
}

/** Logging out in one tab logs out in all. */
export function watchSession(): void {
  addEventListener("storage", (event) => {
    if (event.key === KEPT_AS) session.value = readSession();
  });
}

export function quote(...steps: string[]): string {
  return steps.map(encodeURIComponent).join("/");
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

export function apiUrl(path: string): string {
  return `api/${path}`;
}

/** The same request from a terminal; curl asks for the password. */
export function curlOf(method: "PUT" | "POST" | "DELETE", path: string, body?: unknown): string {
  return curl(session.value?.name ?? "guest", location.href.replace(/[#?].*$/, ""), method, path, body);
}

export function authorization(): Record<string, string> {
  return session.value ? { Authorization: `Bearer ${session.value.token}` } : {};
}

async function failure(response: Response): Promise<ApiFailure> {
  let reason = response.statusText || `status ${response.status}`;
  try {
    const said = (await response.json()) as { reason?: unknown };
    if (said.reason) reason = typeof said.reason === "string" ? said.reason : JSON.stringify(said.reason);
  } catch {
    // Not every refusal has a body.
  }
  return new ApiFailure(response.status, reason.trim());
}

export interface Options {
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

async function send(method: string, path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = { ...authorization(), ...options.headers };
  const init: RequestInit = { method, headers, credentials: "omit", signal: options.signal };
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(options.body);
  }
  let response: Response;
  try {
    response = await fetch(apiUrl(path), init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    unreachable.value = "The node does not answer.";
    throw new ApiFailure(0, "The node does not answer. Is it running?");
  }
  unreachable.value = null;
  if (response.ok) return response;
  const refused = await failure(response);
  // 401 is also what the API says to someone it knows but does not allow.
  if (response.status === 401 && refused.message === "Login failed" && session.value) {
    wasEnded.value = true;
    keep(null);
  }
  throw refused;
}

export async function get<T>(path: string, abort?: AbortSignal): Promise<T> {
  return (await (await send("GET", path, { signal: abort })).json()) as T;
}

export async function act<T = unknown>(
  method: "PUT" | "POST" | "DELETE",
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
): Promise<T | null> {
  const response = await send(method, path, { body, headers });
  const text = await response.text();
  return text ? (JSON.parse(text) as T) : null;
}

export async function logIn(name: string, password: string): Promise<void> {
  const headers = { Authorization: `Basic ${base64(`${name}:${password}`)}` };
  const response = await send("POST", "warren/session", { headers });
  const given = (await response.json()) as { token: string; ends_at: number } & User;
  wasEnded.value = false;
  keep({ token: given.token, endsAt: given.ends_at, name: given.name, tags: given.tags });
}

export function logOut(): void {
  keep(null);
}

/** Tags may have changed since the session began. */
export async function refreshUser(): Promise<void> {
  const current = session.value;
  if (!current) return;
  const now = await get<{ name: string; tags: string[] | string }>("whoami");
  const tags = Array.isArray(now.tags) ? now.tags : now.tags.split(",");
  if (session.value && tags.join() !== current.tags.join()) keep({ ...session.value, tags });
}

function has(...tags: string[]): boolean {
  return tags.some((tag) => session.value?.tags.includes(tag));
}

/** What the user's tags allow, as the API judges them. */
export const may = {
  administrate: () => has("administrator"),
  monitor: () => has("administrator", "monitoring"),
  makePolicies: () => has("administrator", "policymaker"),
};

// Where we are is in the hash of the address: every object has one, and so has every filter.

import { signal } from "@preact/signals";

export interface Place {
  steps: string[];
  query: URLSearchParams;
}

export function parsePlace(hash: string): Place {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const steps = path.split("/").filter((step) => step !== "");
  return { steps: steps.map(decode), query: new URLSearchParams(query) };
}

function decode(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

export function href(steps: string[], query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(given.map(([key, value]) => [key, String(value)])).toString();
  return `#/${steps.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
}

export const place = signal<Place>(parsePlace(globalThis.location?.hash ?? ""));

export function watchPlace(): void {
  addEventListener("hashchange", () => {
    place.value = parsePlace(location.hash);
  });
}

export function go(steps: string[], query: Query = {}): void {
  location.hash = href(steps, query);
}

/** Change parts of the query; the way back is not filled with every letter of a filter. */
export function setQuery(changes: Query): void {
  const query = new URLSearchParams(place.value.query);
  for (const [key, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(key);
    else query.set(key, String(value));
  }
  const search = query.toString();
  const hash = `#/${place.value.steps.map(encodeURIComponent).join("/")}${search ? `?${search}` : ""}`;
  history.replaceState(null, "", hash);
  place.value = parsePlace(hash);
}

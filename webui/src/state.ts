// What the user has chosen for the whole UI; kept in this browser.

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

function kept(name: string, fallback: string): string {
  try {
    return localStorage.getItem(name) ?? fallback;
  } catch {
    return fallback;
  }
}

export const theme = signal<Theme>(kept("warren.theme", "system") as Theme);
/** The virtual host that lists are of; empty for all. */
export const vhost = signal(kept("warren.vhost", ""));

export function startKeeping(): void {
  effect(() => {
    localStorage.setItem("warren.theme", theme.value);
    if (theme.value === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
  });
  effect(() => localStorage.setItem("warren.vhost", vhost.value));
}

/** The path of a list: of one virtual host, or of all. */
export function within(list: string): string {
  return vhost.value ? `${list}/${encodeURIComponent(vhost.value)}` : list;
}

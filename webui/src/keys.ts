// Keys: `/` goes to the filter, `g` and a letter to a page.

import { go } from "./router";

export const PAGES: Record<string, [string, string]> = {
  o: ["", "Overview"],
  q: ["queues", "Queues"],
  e: ["exchanges", "Exchanges"],
  c: ["connections", "Connections"],
  h: ["channels", "Channels"],
  k: ["cluster", "Cluster"],
  n: ["nodes", "Nodes"],
  d: ["dead-letters", "Dead letters"],
  s: ["shovels", "Shovels"],
  t: ["topology", "Topology"],
  p: ["policies", "Policies"],
  l: ["log", "Log"],
};

const SECOND_KEY_MS = 1000;

export function startKeys(): () => void {
  let isGoing = false;
  let timer: ReturnType<typeof setTimeout>;
  function onKey(event: KeyboardEvent): void {
    const target = event.target as HTMLElement;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest("input, textarea, select, dialog")) {
      if (event.key === "Escape" && !target.closest("dialog")) target.blur();
      return;
    }
    if (isGoing) {
      isGoing = false;
      const page = PAGES[event.key];
      if (page) go(page[0] ? [page[0]] : []);
      return;
    }
    if (event.key === "/") {
      const filter = document.querySelector<HTMLInputElement>(".filter-input");
      if (filter) {
        event.preventDefault();
        filter.focus();
      }
    } else if (event.key === "g") {
      isGoing = true;
      clearTimeout(timer);
      timer = setTimeout(() => (isGoing = false), SECOND_KEY_MS);
    } else if (event.key === "?") {
      go(["keys"]);
    }
  }
  addEventListener("keydown", onKey);
  return () => removeEventListener("keydown", onKey);
}

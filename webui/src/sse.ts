// Server-sent events through fetch: the browser's own EventSource cannot send a token.

import { apiUrl, authorization } from "./api";

export interface ServerEvent {
  id: string;
  name: string;
  data: string;
}

/** Takes pieces of a stream as they come; gives the events that are whole. */
export class EventParser {
  private rest = "";
  private id = "";

  push(piece: string): ServerEvent[] {
    const text = this.rest + piece;
    const blocks = text.split(/\r?\n\r?\n/);
    this.rest = blocks.pop() ?? "";
    return blocks.map((block) => this.event(block)).filter((event) => event !== null);
  }

  private event(block: string): ServerEvent | null {
    let name = "message";
    const data: string[] = [];
    for (const line of block.split(/\r?\n/)) {
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "id") this.id = value;
      else if (field === "event") name = value;
      else if (field === "data") data.push(value);
    }
    return data.length ? { id: this.id, name, data: data.join("\n") } : null;
  }
}

const RETRY_MS = 2000;

/** Follows a stream until the signal aborts; `onState` hears whether it is connected. */
export async function follow(
  path: string,
  since: string,
  onEvent: (event: ServerEvent) => void,
  onState: (isConnected: boolean) => void,
  abort: AbortSignal,
): Promise<void> {
  let last = since;
  while (!abort.aborted) {
    try {
      const headers: Record<string, string> = { ...authorization(), Accept: "text/event-stream" };
      if (last) headers["Last-Event-ID"] = last;
      const response = await fetch(apiUrl(path), { headers, credentials: "omit", signal: abort });
      if (response.status === 401 || response.status === 404) return onState(false);
      if (response.ok && response.body) {
        onState(true);
        const parser = new EventParser();
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          for (const event of parser.push(value)) {
            last = event.id || last;
            onEvent(event);
          }
        }
      }
    } catch {
      // The node is gone for a while, or we are.
    }
    if (abort.aborted) return;
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

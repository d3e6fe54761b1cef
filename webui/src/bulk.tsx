// One action on many queues: one request, and of each what came of it.

import type { JSX } from "preact";

import { act } from "./api";
import { plural, shellCommands, shellWord } from "./format";
import { ask } from "./parts/dialog";
import type { Queue } from "./types";

export type QueueAction = "purge" | "delete" | "pause" | "resume" | "sync";

export interface Item {
  vhost: string;
  name: string;
  status: number;
  reason: string | null;
}

export interface Outcome {
  action: string;
  done: number;
  failed: number;
  items: Item[];
}

const isDone = (item: Item) => item.status < 300;

/** Does it to all of them. Of a single one that fails the reason is thrown. */
export async function onQueues(action: QueueAction, rows: Queue[]): Promise<Outcome> {
  const queues = rows.map(({ vhost, name }) => ({ vhost, name }));
  const outcome = (await act<Outcome>("POST", "warren/queues/actions", { action, queues }))!;
  if (rows.length === 1 && outcome.failed) throw new Error(outcome.items[0]!.reason ?? `status ${outcome.items[0]!.status}`);
  return outcome;
}

/** Those that failed come first: they are what somebody has to look at. */
export function inOrder(items: Item[]): Item[] {
  return [...items.filter((item) => !isDone(item)), ...items.filter(isDone)];
}

const SHOWN_MAX = 200;

/** Nothing, where all went well. */
export function told(outcome: Outcome, past: string): JSX.Element | null {
  if (!outcome.failed) return null;
  return (
    <div class="outcome">
      <div class="notice bad" role="alert">
        <strong>
          {outcome.done} of {plural(outcome.items.length, "queue")} {past}, {outcome.failed} not.
        </strong>
      </div>
      <ul class="names outcomes">
        {inOrder(outcome.items)
          .slice(0, SHOWN_MAX)
          .map((item) => (
            <li key={`${item.vhost} ${item.name}`} class={isDone(item) ? "good" : "bad"}>
              <span aria-hidden="true">{isDone(item) ? "✓" : "✕"}</span> <code>{item.name}</code> in <code>{item.vhost}</code>: {isDone(item) ? past : (item.reason ?? `status ${item.status}`)}
            </li>
          ))}
        {outcome.items.length > SHOWN_MAX && <li>and {outcome.items.length - SHOWN_MAX} more</li>}
      </ul>
    </div>
  );
}

interface Harmless {
  verb: string;
  past: string;
  command: string;
  says: (rows: Queue[]) => JSX.Element;
}

const HARMLESS: Record<"pause" | "resume" | "sync", Harmless> = {
  pause: {
    verb: "Pause",
    past: "paused",
    command: "pause_queue",
    says: (rows) => (
      <p>
        {consumers(rows)} will be given <strong>nothing more</strong>, and basic.get finds nothing, until you resume. Publishes go on, so {rows.length === 1 ? "the queue grows" : "the queues grow"}; what consumers hold stays
        with them. It holds on all nodes, over failovers and restarts.
      </p>
    ),
  },
  resume: {
    verb: "Resume",
    past: "resumed",
    command: "resume_queue",
    says: (rows) => (
      <p>
        {consumers(rows)} will be given what waits: {plural(ready(rows), "message")}.
      </p>
    ),
  },
  sync: {
    verb: "Synchronise",
    past: "being synchronised",
    command: "sync_queue",
    says: () => <p>Mirrors that lack messages are given them. Clients are served meanwhile, somewhat slower.</p>,
  },
};

const ready = (rows: Queue[]) => rows.reduce((sum, row) => sum + (row.messages_ready ?? 0), 0);
const consumers = (rows: Queue[]) => plural(rows.reduce((sum, row) => sum + (row.consumers ?? 0), 0), "consumer");

export function askHarmless(action: "pause" | "resume" | "sync", rows: Queue[], done: () => void): void {
  const { verb, past, command, says } = HARMLESS[action];
  const what = rows.length === 1 ? `queue ${rows[0]!.name}` : plural(rows.length, "queue");
  ask({
    title: action === "sync" ? `Synchronise the mirrors of ${what}?` : `${verb} the consumers of ${what}?`,
    body: says(rows),
    verb,
    isHarmless: true,
    command: commands(command, rows),
    run: () => onQueues(action, rows).finally(done),
    outcome: (outcome) => told(outcome as Outcome, past),
    done: `${plural(rows.length, "queue")} ${past}`,
  });
}

export function commands(command: string, rows: Queue[]): string {
  return shellCommands(rows.map((row) => `warrenctl ${command} -p ${shellWord(row.vhost)} ${shellWord(row.name)}`));
}

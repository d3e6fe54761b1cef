// Sending dead letters back: first what would happen, then the same in earnest, some thousands at a time.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { act, quote } from "./api";
import { added, type Cause, matchOf, NOBODY, type Outcome, reasonText } from "./deadletters";
import { count, plural, shellWord } from "./format";
import { ask, say } from "./parts/dialog";
import type { Queue } from "./types";

const AT_A_TIME = 2000;

async function redrive(queue: Queue, match: Record<string, string> | null, isDry: boolean, onProgress?: (so: Outcome) => void): Promise<Outcome> {
  let total = NOBODY;
  for (;;) {
    const body = { count: AT_A_TIME, match: match ?? {}, dry_run: isDry, ...(total.last_slot === null ? {} : { after: total.last_slot }) };
    const some = (await act<Outcome>("POST", `queues/${quote(queue.vhost, queue.name)}/redrive`, body)) ?? NOBODY;
    total = added(total, some);
    onProgress?.(total);
    if (some.moved < AT_A_TIME) return total;
  }
}

/** What sending back would do, asked of the broker while the dialog is open. */
function WouldDo({ queue, match }: { queue: Queue; match: Record<string, string> | null }): JSX.Element {
  const [found, setFound] = useState<Outcome | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  useEffect(() => {
    let isOver = false;
    redrive(queue, match, true, (so) => !isOver && setFound(so)).catch((error: Error) => !isOver && setFailed(error.message));
    return () => {
      isOver = true;
    };
  }, []);
  if (failed) return <div class="notice warn">{failed}</div>;
  if (!found) return <p class="loading">Counting what would go where …</p>;
  const queues = Object.entries(found.to).sort(([, a], [, b]) => b - a);
  return (
    <div class="would-do">
      <p>
        {queues.length === 0 ? (
          <strong>No message can be sent back.</strong>
        ) : (
          <>
            <strong>{plural(found.moved, "message")}</strong> will go back to where {found.moved === 1 ? "it" : "each"} first died, and consumers there get them again:
          </>
        )}
      </p>
      {queues.length > 0 && (
        <ul class="names">
          {queues.slice(0, 20).map(([name, amount]) => (
            <li>
              {count(amount)} to <code>{name}</code>
            </li>
          ))}
          {queues.length > 20 && <li>and {plural(queues.length - 20, "other queue")}</li>}
        </ul>
      )}
      {found.kept > 0 && (
        <p>
          {plural(found.kept, "message")} will stay: {found.kept === 1 ? "its" : "their"} queue is gone, on another node, or exclusive to a connection.
        </p>
      )}
      {found.unmatched > 0 && <p class="dim">{plural(found.unmatched, "message")} of other causes will not be touched.</p>}
      <p class="dim">What made them die may do so again. They keep their x-death headers and get one more, x-redriven, so consumers can tell.</p>
    </div>
  );
}

export function askRedrive(queue: Queue, onChange: () => void, cause?: Cause): void {
  const match = cause ? matchOf(cause) : null;
  const words = Object.entries(match ?? {}).map(([field, pattern]) => ` --match ${shellWord(`${field}=${pattern}`)}`);
  ask({
    title: cause ? `Send back what was ${reasonText(cause.reason)} in ${cause.queue}?` : `Send the dead letters of ${queue.name} back?`,
    body: <WouldDo queue={queue} match={match} />,
    verb: "Send back",
    isHarmless: true,
    command: `warrenctl redrive -p ${shellWord(queue.vhost)} ${shellWord(queue.name)}${words.join("")}`,
    run: async () => {
      const done = await redrive(queue, match, false);
      say(`${plural(done.moved, "message")} sent back, ${count(done.kept)} stayed`);
      onChange();
    },
  });
}

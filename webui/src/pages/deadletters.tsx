import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { act, quote } from "../api";
import { type Cause, type CauseAnswer, counted, type Counted, matchOf, NOTHING, reasonText } from "../deadletters";
import { bytes, clock, count, plural, shortNode } from "../format";
import { useLive } from "../live";
import { CopyButton } from "../parts/copy";
import { Badge, Bar, Empty, Failure, Name, PageHead, Panel, Time } from "../parts/small";
import type { PageOf } from "../parts/table";
import { askRedrive } from "../redrive";
import { href } from "../router";
import { within } from "../state";
import type { Queue } from "../types";
import { MessageView } from "./messages";
import { askPurge } from "./queues";

interface DeadLetterQueue {
  vhost: string;
  name: string;
  node: string;
  sources: string[];
}

export function DeadLettersPage(): JSX.Element {
  const live = useLive<PageOf<DeadLetterQueue>>(`${within("warren/dead-letters")}?page=1&page_size=50`, 15000);
  return (
    <>
      <PageHead title="Dead letters" sub="Messages that were rejected, expired or pushed out, by their cause; and the way back." />
      {live.error && <Failure error={live.error} />}
      {!live.data && !live.error && <p class="loading">Loading …</p>}
      {live.data?.items.map((row) => <OneQueue key={`${row.vhost} ${row.name}`} row={row} />)}
      {live.data && live.data.items.length === 0 && (
        <Panel>
          <Empty title="No queue gathers dead letters.">
            A queue sends its dead letters on when it has <code>x-dead-letter-exchange</code>, or a policy gives it <code>dead-letter-exchange</code>.{" "}
            <a href={href(["policies"], { add: 1, definition: '{"dead-letter-exchange":""}' })}>Add such a policy</a>.
          </Empty>
        </Panel>
      )}
      {live.data && live.data.filtered_count > live.data.items.length && (
        <p class="dim">
          {count(live.data.items.length)} of {plural(live.data.filtered_count, "queue")} are shown; choose a virtual host to see fewer.
        </p>
      )}
    </>
  );
}

/** Goes through the whole queue, as many answers as that takes; again when its length has changed. */
function useCauses(path: string, ready: number | null, turn: number): { counted: Counted | null; failed: string | null } {
  const [found, setFound] = useState<Counted | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const isBusy = useRef(false);
  useEffect(() => {
    if (ready === null) return undefined;
    let isOver = false;
    async function look(): Promise<void> {
      // A long queue is not begun anew whenever a message comes: it is counted to its end first.
      while (isBusy.current && !isOver) await new Promise((resolve) => setTimeout(resolve, 500));
      if (isOver) return;
      isBusy.current = true;
      try {
        let so = NOTHING;
        let after: string | null = null;
        while (!so.isOver && so.lookedAt <= (ready ?? 0)) {
          const answer: CauseAnswer | null = await act<CauseAnswer>("POST", `${path}/causes`, after === null ? {} : { after });
          if (!answer) break;
          so = counted(so, answer);
          after = answer.last_slot;
          setFound((before) => (so.isOver || !before || before.lookedAt <= so.lookedAt ? so : before));
        }
        setFound({ ...so, isOver: true });
        setFailed(null);
      } catch (error) {
        setFailed((error as Error).message);
      } finally {
        isBusy.current = false;
      }
    }
    void look();
    return () => {
      isOver = true;
    };
  }, [path, ready, turn]);
  return { counted: found, failed };
}

function OneQueue({ row }: { row: DeadLetterQueue }): JSX.Element {
  const path = `queues/${quote(row.vhost, row.name)}`;
  const live = useLive<Queue>(path, 10000);
  const [turn, setTurn] = useState(0);
  const ready = live.data?.messages_ready ?? null;
  const { counted: found, failed } = useCauses(path, ready, turn);

  function refresh(): void {
    live.refresh();
    setTurn((before) => before + 1);
  }

  return (
    <Panel
      title={
        <>
          <a href={href(["queues", row.vhost, row.name])}>{row.name}</a> {ready !== null && <Badge tone={ready ? "warn" : "good"}>{plural(ready, "message")}</Badge>}
        </>
      }
      actions={
        <>
          <button type="button" disabled={!ready} onClick={() => live.data && askRedrive(live.data, refresh)}>
            Send all back …
          </button>
          <button type="button" class="danger" disabled={!ready} onClick={() => live.data && askPurge([live.data], refresh)}>
            Purge …
          </button>
        </>
      }
    >
      <p class="dim small lead">
        {row.vhost !== "/" && (
          <>
            in <code>{row.vhost}</code>,{" "}
          </>
        )}
        on {shortNode(row.node)}, from {row.sources.slice(0, 5).map((name, i) => [i > 0 && ", ", <a href={href(["queues", row.vhost, name])}>{name}</a>])}
        {row.sources.length > 5 && ` and ${row.sources.length - 5} more`}
      </p>
      {live.error && <Failure error={live.error} />}
      {failed && <div class="notice warn">{failed}</div>}
      {found && !found.isOver && (
        <div class="sync">
          {count(found.lookedAt)} of {plural(ready ?? 0, "message")} looked at so far
          <Bar label={`Dead letters of ${row.name} looked at`} part={found.lookedAt} whole={ready ?? 0} />
        </div>
      )}
      {found && found.causes.length === 0 && found.isOver && <p class="dim">It is empty: nothing has died lately.</p>}
      {found && found.causes.length > 0 && (
        <div class="scroll tabled" tabIndex={0} role="region" aria-label={`Causes of the dead letters in ${row.name}`}>
          <table class="causes cards">
            <thead>
              <tr>
                <th scope="col">Cause</th>
                <th scope="col">In queue</th>
                <th scope="col" class="wide">
                  Published to
                </th>
                <th scope="col" class="wide">
                  Died
                </th>
                <th scope="col" class="num">
                  Messages
                </th>
                <th scope="col" class="num wide">
                  Size
                </th>
                <th class="row-end">
                  <CopyButton label={`Causes in ${row.name}`} rows={found.causes} isSmall />
                </th>
              </tr>
            </thead>
            {found.causes.map((cause) => (
              <OneCause key={`${cause.reason} ${cause.queue} ${cause.exchange}`} cause={cause} queue={live.data} row={row} onChange={refresh} />
            ))}
          </table>
        </div>
      )}
      {found && found.untold > 0 && <p class="dim">{plural(found.untold, "message")} of yet other causes are not told apart.</p>}
    </Panel>
  );
}

function OneCause(props: { cause: Cause; queue: Queue | null; row: DeadLetterQueue; onChange: () => void }): JSX.Element {
  const { cause, queue, row } = props;
  const [isOpen, setOpen] = useState(false);
  const { oldest, newest } = cause;
  return (
    <tbody>
      <tr>
        <td data-label="Cause">{reasonText(cause.reason)}</td>
        <td data-label="In queue">
          {cause.queue && (
            <a href={href(["queues", row.vhost, cause.queue])}>
              <Name text={cause.queue} />
            </a>
          )}
        </td>
        <td class="wide" data-label="Published to">{cause.reason !== null && <code>{cause.exchange || "(default exchange)"}</code>}</td>
        <td class="wide" data-label="Died">
          {oldest !== null && oldest !== newest && `${clock(oldest)} – `}
          {newest === null ? "–" : <Time at={newest} />}
        </td>
        <td class="num" data-label="Messages">{count(cause.messages)}</td>
        <td class="num wide" data-label="Size">{bytes(cause.bytes)}</td>
        <td class="row-end">
          <button type="button" class="quiet" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            {isOpen ? "Hide" : "Example"}
          </button>
          {matchOf(cause) && queue && (
            <button type="button" class="quiet" onClick={() => askRedrive(queue, props.onChange, cause)}>
              Send back …
            </button>
          )}
        </td>
      </tr>
      {isOpen && (
        <tr class="inner">
          <td colSpan={7}>
            <MessageView message={cause.example} number={1} />
          </td>
        </tr>
      )}
    </tbody>
  );
}

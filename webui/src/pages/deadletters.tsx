import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { act, ApiFailure, quote } from "../api";
import { byCause, type Cause, reasonText } from "../deadletters";
import { clock, count, plural, shortNode } from "../format";
import { useLive } from "../live";
import { Badge, Empty, Failure, PageHead, Panel } from "../parts/small";
import { type PageOf, Plain } from "../parts/table";
import { href } from "../router";
import { within } from "../state";
import type { Message, Queue } from "../types";
import { askRedrive, MessageView } from "./messages";

interface DeadLetterQueue {
  vhost: string;
  name: string;
  node: string;
  sources: string[];
}

/** Messages of each queue that are looked at to tell the causes. */
const LOOKED_AT = 200;

export function DeadLettersPage(): JSX.Element {
  const live = useLive<PageOf<DeadLetterQueue>>(`${within("warren/dead-letters")}?page=1&page_size=50`, 15000);
  return (
    <>
      <PageHead title="Dead letters" sub="Messages that were rejected, expired or pushed out, by their cause; and the way back." />
      {live.error && <Failure error={live.error} />}
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

function OneQueue({ row }: { row: DeadLetterQueue }): JSX.Element {
  const path = `queues/${quote(row.vhost, row.name)}`;
  const live = useLive<Queue>(path, 10000);
  const [causes, setCauses] = useState<Cause[] | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const [turn, setTurn] = useState(0);
  const ready = live.data?.messages_ready ?? 0;

  useEffect(() => {
    if (!live.data) return;
    let isOver = false;
    async function look(): Promise<void> {
      try {
        const body = { count: LOOKED_AT, offset: 0, encoding: "auto", truncate: 2000 };
        const found = ready ? await act<Message[]>("POST", `${path}/peek`, body) : [];
        if (!isOver) setCauses(byCause(found ?? []));
        if (!isOver) setFailed(null);
      } catch (error) {
        const isMissing = error instanceof ApiFailure && (error.status === 404 || error.status === 405);
        if (!isOver) setFailed(isMissing ? "This node cannot look into queues yet, so the causes are not known." : (error as Error).message);
      }
    }
    void look();
    return () => {
      isOver = true;
    };
  }, [path, ready, turn, live.data === null]);

  function refresh(): void {
    live.refresh();
    setTurn(turn + 1);
  }

  return (
    <Panel
      title={
        <>
          <a href={href(["queues", row.vhost, row.name])}>{row.name}</a> <Badge tone={ready ? "warn" : "good"}>{plural(ready, "message")}</Badge>
        </>
      }
      actions={
        <button type="button" disabled={!ready} onClick={() => live.data && askRedrive(live.data, refresh)}>
          Send all back …
        </button>
      }
    >
      <p class="dim small">
        on {shortNode(row.node)}, from {row.sources.slice(0, 5).map((name, i) => [i > 0 && ", ", <a href={href(["queues", row.vhost, name])}>{name}</a>])}
        {row.sources.length > 5 && ` and ${row.sources.length - 5} more`}
      </p>
      {live.error && <Failure error={live.error} />}
      {failed && <div class="notice warn">{failed}</div>}
      {causes && (
        <Plain
          label={`Causes of the dead letters in ${row.name}`}
          rows={causes}
          keyOf={(cause) => `${cause.reason} ${cause.queue} ${cause.exchange}`}
          empty={<strong>It is empty.</strong>}
          columns={[
            { title: "Cause", show: (cause) => reasonText(cause.reason) },
            { title: "In queue", show: (cause) => cause.queue && <a href={href(["queues", row.vhost, cause.queue])}>{cause.queue}</a> },
            { title: "Published to", wide: true, show: (cause) => <code>{cause.exchange || "(default exchange)"}</code> },
            { title: "Last", wide: true, show: (cause) => (cause.newest ? clock(cause.newest) : "–") },
            { title: "Messages", numeric: true, show: (cause) => `${count(cause.amount)}${ready > LOOKED_AT ? ` of the first ${LOOKED_AT}` : ""}` },
            {
              title: "Example",
              show: (cause) => (
                <details class="example">
                  <summary>show</summary>
                  <MessageView message={cause.example} number={1} />
                </details>
              ),
            },
          ]}
        />
      )}
    </Panel>
  );
}

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, get, quote } from "../api";
import { bytes, count, plural, shellWord, shortNode } from "../format";
import { useLive } from "../live";
import { ask, attempt, say } from "../parts/dialog";
import { Choice, Field, Text, VhostChoice } from "../parts/forms";
import { Badge, Empty, Facts, Failure, Loaded, PageHead, Panel, Time } from "../parts/small";
import { Plain } from "../parts/table";
import { go, href } from "../router";
import { lineOf, type Piece, whatIsIn } from "../salvage";
import type { Message } from "../types";
import { MessageView } from "./messages";

export function SalvagePage(): JSX.Element {
  const live = useLive<Piece[]>("warren/salvage", 15000);
  return (
    <>
      <PageHead title="Salvage" sub="What a node could not read of its log, or had to give up, is put aside and never thrown away." />
      <Panel>
        <Loaded live={live}>
          {(rows) => (
            <Plain
              label="Salvaged pieces"
              rows={[...rows].reverse()}
              keyOf={(row) => `${row.node} ${row.file}`}
              empty={
                <Empty title="Nothing had to be put aside on any node that runs." command="warrenctl salvage list">
                  When a disk gives back damaged bytes, or a mirror that lacked messages had to become master, what was cut off appears here, and can be brought back.
                </Empty>
              }
              columns={[
                { title: "When", show: (row) => <Time at={Date.parse(row.time)} /> },
                { title: "Node", show: (row) => shortNode(row.node) },
                {
                  title: "What",
                  show: (row) => (
                    <>
                      <a href={href(["salvage", row.node, row.file])}>{whatIsIn(row)}</a>
                      <div class="dim small">{row.reason}</div>
                    </>
                  ),
                },
                { title: "Size", numeric: true, show: (row) => bytes(row.bytes) },
                { title: "File", wide: true, show: (row) => <code>{row.file}</code> },
              ]}
            />
          )}
        </Loaded>
      </Panel>
    </>
  );
}

const AT_A_TIME = 200;

/** All messages of a piece as a file: a line of JSON for each. */
async function download(piece: Piece, path: string): Promise<void> {
  const lines: string[] = [];
  for (;;) {
    const some = await get<Message[]>(`${path}?first=${lines.length}&count=${AT_A_TIME}&encoding=base64`);
    lines.push(...some.map(lineOf));
    if (some.length < AT_A_TIME) break;
  }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines.map((line) => `${line}\n`), { type: "application/jsonl" }));
  link.download = `${piece.file}.jsonl`;
  link.click();
  URL.revokeObjectURL(link.href);
  say(`${plural(lines.length, "message")} exported`);
}

function askDrop(piece: Piece, path: string): void {
  ask({
    title: `Throw ${piece.file} away?`,
    body: (
      <p>
        {piece.messages === undefined ? bytes(piece.bytes) : plural(piece.messages, "message")}
        {piece.queue && (
          <>
            {" "}
            of queue <code>{piece.queue}</code>
          </>
        )}{" "}
        will be <strong>gone for good</strong>: this is the only copy there is.
      </p>
    ),
    verb: "Throw away",
    typed: piece.file,
    command: `warrenctl salvage drop ${shellWord(piece.file)} --on ${shellWord(piece.node)}`,
    run: async () => {
      await act("DELETE", path);
      go(["salvage"]);
    },
    done: `${piece.file} is gone`,
  });
}

export function SalvagePiecePage({ node, file }: { node: string; file: string }): JSX.Element {
  const path = `warren/salvage/${quote(node, file)}`;
  const live = useLive<Piece[]>("warren/salvage", 15000);
  const piece = live.data?.find((row) => row.node === node && row.file === file);
  if (!piece) {
    return (
      <>
        <PageHead title={file} trail={[["Salvage", "#/salvage"]]} />
        <Panel>
          {live.error && <Failure error={live.error} />}
          {live.data ? <Empty title="There is no such piece.">It was brought back or thrown away, or its node is down.</Empty> : !live.error && <p class="loading">Loading …</p>}
        </Panel>
      </>
    );
  }
  const hasMessages = piece.messages !== undefined;
  return (
    <>
      <PageHead title={whatIsIn(piece)} trail={[["Salvage", "#/salvage"]]} sub={piece.reason}>
        {hasMessages && (
          <button type="button" onClick={() => void attempt(() => download(piece, path))}>
            Export
          </button>
        )}
        <button type="button" class="danger" onClick={() => askDrop(piece, path)}>
          Throw away …
        </button>
      </PageHead>
      <Panel title="Details" actions={<Badge tone="warn">put aside</Badge>}>
        <Facts
          rows={[
            ["When", <Time at={Date.parse(piece.time)} />],
            ["Node", piece.node],
            ...(hasMessages
              ? ([
                  ["Queue", <a href={href(["queues", piece.vhost!, piece.queue!])}>{piece.queue}</a>],
                  ["Virtual host", <code>{piece.vhost}</code>],
                  ["Messages", count(piece.messages)],
                ] as [string, JSX.Element | string][])
              : ([["Stood in", `${piece.segment}, from byte ${count(piece.offset)} on`]] as [string, string][])),
            ["Size", bytes(piece.bytes)],
            ["File", <code>{`${piece.folder}/${piece.file}`}</code>],
          ]}
        />
      </Panel>
      {hasMessages ? (
        <>
          <BringBack piece={piece} path={path} />
          <Messages piece={piece} path={path} />
        </>
      ) : (
        <Panel>
          <Empty title="These are bytes of a log that could not be understood.">
            They can be looked at on the node, with the tools of whoever repairs disks. Queues that may have lost something by it say so on their pages.
          </Empty>
        </Panel>
      )}
    </>
  );
}

function BringBack({ piece, path }: { piece: Piece; path: string }): JSX.Element {
  const [vhost, setVhost] = useState(piece.vhost ?? "/");
  const [queue, setQueue] = useState(piece.queue ?? "");
  function bring(event: Event): void {
    event.preventDefault();
    ask({
      title: `Publish ${plural(piece.messages ?? 0, "message")} to ${queue} again?`,
      body: (
        <>
          <p>
            They go to the end of queue <code>{queue}</code> in <code>{vhost}</code>, each with the header <code>x-salvaged</code>: some may have been consumed before, and consumers may see them <strong>a second time</strong>.
          </p>
          <p>When the queue has them for good, on all its mirrors, this piece is thrown away.</p>
        </>
      ),
      verb: "Publish again",
      isHarmless: true,
      command: `warrenctl salvage republish ${shellWord(piece.file)} --on ${shellWord(piece.node)} --queue ${shellWord(queue)} -p ${shellWord(vhost)}`,
      run: async () => {
        const done = await act<{ republished: number }>("POST", `${path}/republish`, { vhost, queue });
        say(`${plural(done?.republished ?? 0, "message")} are in ${queue} again`);
        go(["queues", vhost, queue, "messages"]);
      },
    });
  }
  return (
    <Panel title="Bring them back">
      <form class="form" onSubmit={bring}>
        <Field label="Virtual host">
          <VhostChoice value={vhost} onChange={setVhost} />
        </Field>
        <Field label="To queue" hint={piece.queue === queue ? "where they were" : `they were in ${piece.queue}`}>
          <Text name="salvage-queue" value={queue} onChange={setQueue} required />
        </Field>
        <button type="submit" class="primary">
          Publish again …
        </button>
      </form>
    </Panel>
  );
}

function Messages({ piece, path }: { piece: Piece; path: string }): JSX.Element {
  const [first, setFirst] = useState(0);
  const [size, setSize] = useState("10");
  const live = useLive<Message[]>(`${path}?first=${first}&count=${size}`, 0);
  const last = Math.min(first + Number(size), piece.messages ?? 0);
  return (
    <Panel title="Messages" actions={<Choice label="How many at a time" value={size} onChange={setSize} options={["10", "50", "200"].map((each) => [each, each])} />}>
      <Loaded live={live}>{(messages) => messages.map((message, i) => <MessageView key={`${first} ${i}`} message={message} number={first + i + 1} />)}</Loaded>
      {(piece.messages ?? 0) > Number(size) && (
        <nav class="pager" aria-label="Pages">
          <button type="button" disabled={first === 0} onClick={() => setFirst(Math.max(0, first - Number(size)))}>
            ← Earlier
          </button>
          <span>
            {count(first + 1)} to {count(last)} of {count(piece.messages)}
          </span>
          <button type="button" disabled={last >= (piece.messages ?? 0)} onClick={() => setFirst(first + Number(size))}>
            Later →
          </button>
        </nav>
      )}
    </Panel>
  );
}

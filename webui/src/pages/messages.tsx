import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, ApiFailure, curlOf, quote } from "../api";
import { copyText } from "../copy";
import { reasonText } from "../deadletters";
import { bytes, clock, count, plural, shellWord } from "../format";
import { ask, attempt, say } from "../parts/dialog";
import { Choice, Drawer, Field, type Pair, Pairs, tableOf, Text } from "../parts/forms";
import { Badge, Empty, Facts, Json, Panel, Same, Time } from "../parts/small";
import { askRedrive } from "../redrive";
import type { Message, Queue } from "../types";
import { MessageTable } from "./messagetable";

const SHOWN_CHARACTERS = 4000;

export function pretty(message: Message): string {
  if (message.payload_encoding !== "string") return message.payload;
  try {
    return JSON.stringify(JSON.parse(message.payload), null, 2);
  } catch {
    return message.payload;
  }
}

export function MessageView({ message, number }: { message: Message; number: number }): JSX.Element {
  const properties = (Array.isArray(message.properties) ? {} : message.properties) as Record<string, unknown>;
  const { headers, ...rest } = properties;
  const text = pretty(message);
  return (
    <article class="message-view">
      <header>
        <strong>#{number}</strong> <code>{message.exchange || "(default exchange)"}</code> → <code>{message.routing_key}</code>
        <span class="dim">
          {bytes(message.payload_bytes)}
          {message.payload_encoding !== "string" && ", shown as base64"}
          {message.redelivered && ", redelivered"}
        </span>
        <button type="button" class="quiet" aria-label={`Copy the body of message ${number}`} onClick={() => void attempt(() => copyText(message.payload), "The body is copied")}>
          copy
        </button>
      </header>
      <pre tabIndex={0}>{text.slice(0, SHOWN_CHARACTERS) || "(empty)"}{text.length > SHOWN_CHARACTERS && "\n…"}</pre>
      <Redriven mark={(headers as Record<string, unknown> | undefined)?.["x-redriven"]} />
      <Deaths deaths={(headers as Record<string, unknown> | undefined)?.["x-death"]} />
      <Facts
        rows={[
          ...Object.entries(rest).map(([key, value]) => [key, key === "timestamp" ? clock(Number(value) * 1000) : String(value)] as [string, string]),
          ...Object.entries((headers ?? {}) as Record<string, unknown>)
            .filter(([key]) => key !== "x-death" && key !== "x-redriven")
            .map(([key, value]) => [key, typeof value === "object" ? <Json value={value} /> : String(value)] as [string, JSX.Element | string]),
        ]}
      />
    </article>
  );
}

interface Death {
  count?: number;
  reason?: string;
  queue?: string;
  exchange?: string;
  time?: number;
  "routing-keys"?: string[];
}

/** That somebody has sent it back before: it may well die again. */
function Redriven({ mark }: { mark: unknown }): JSX.Element | null {
  if (typeof mark !== "object" || mark === null) return null;
  const { count: times, time, from } = mark as { count?: number; time?: number; from?: string };
  return (
    <p>
      <Badge tone="warn">sent back {plural(times ?? 1, "time")}</Badge> last from <code>{from}</code>
      {typeof time === "number" && (
        <>
          , <Time at={time * 1000} />
        </>
      )}
    </p>
  );
}

/** Where a dead letter has been, the newest first. */
function Deaths({ deaths }: { deaths: unknown }): JSX.Element | null {
  if (!Array.isArray(deaths) || deaths.length === 0) return null;
  return (
    <>
      <p class="dim small">x-death, the newest first</p>
      <ol class="deaths" aria-label="x-death">
        {(deaths as Death[]).map((death) => (
          <li>
            <strong>{reasonText(death.reason ?? "died")}</strong> in <code>{death.queue}</code>
            {(death.count ?? 1) > 1 && `, ${count(death.count)} times`}, published to <code>{death.exchange || "(default exchange)"}</code> with <code>{death["routing-keys"]?.join(", ")}</code>
            {typeof death.time === "number" && (
              <>
                {" "}
                <Time at={death.time * 1000} />
              </>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}

export function QueueMessages({ queue, onChange }: { queue: Queue; onChange: () => void }): JSX.Element {
  return (
    <>
      <Look queue={queue} />
      <Drawer title="Publish a message to this queue">
        <Publish vhost={queue.vhost} exchange="" routingKey={queue.name} onDone={onChange} />
      </Drawer>
      <Drawer title="Take messages out">
        <Take queue={queue} onChange={onChange} />
      </Drawer>
      <Drawer title="Move messages to another queue">
        <Move queue={queue} onChange={onChange} />
      </Drawer>
      <Drawer title="Send dead letters back to where they died">
        <Redrive queue={queue} onChange={onChange} />
      </Drawer>
    </>
  );
}

function Look({ queue }: { queue: Queue }): JSX.Element {
  const [amount, setAmount] = useState("10");
  const [offset, setOffset] = useState(0);
  const [found, setFound] = useState<Message[] | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  const [isTable, setTable] = useState(false);
  async function look(from: number): Promise<void> {
    try {
      const body = { count: Number(amount), offset: from, encoding: "auto", truncate: 50000 };
      setFound((await act<Message[]>("POST", `queues/${quote(queue.vhost, queue.name)}/peek`, body)) ?? []);
      setOffset(from);
      setFailed(null);
    } catch (error) {
      const isMissing = error instanceof ApiFailure && (error.status === 404 || error.status === 405);
      setFailed(isMissing ? "This node cannot look into queues yet. Taking messages out (below) can put them back." : String((error as Error).message));
    }
  }
  return (
    <Panel
      title="Look into the queue"
      actions={
        <>
          <Choice label="How many" value={amount} onChange={setAmount} options={["1", "10", "50"].map((each) => [each, each])} />
          <button type="button" onClick={() => setTable(!isTable)}>
            {isTable ? "One by one" : "As a table"}
          </button>
          <button type="button" class="primary" onClick={() => void look(0)}>
            Look
          </button>
        </>
      }
    >
      <p class="dim lead">Nothing is taken out and nothing is marked as redelivered: consumers do not notice.</p>
      {failed && (
        <div class="notice warn" role="alert">
          {failed}
        </div>
      )}
      {found && found.length === 0 && <Empty title={offset ? "There are no more." : "No message waits in this queue."} command={offset ? undefined : `warrenctl tail -p ${shellWord(queue.vhost)} ${shellWord(queue.name)}`} />}
      {found && found.length > 0 && isTable && <MessageTable messages={found} first={offset + 1} onOpen={() => setTable(false)} />}
      {!isTable && found?.map((message, i) => <MessageView key={`${offset} ${i}`} message={message} number={offset + i + 1} />)}
      {found && (found.length > 0 || offset > 0) && (
        <div class="pager">
          <button type="button" disabled={offset === 0} onClick={() => void look(Math.max(0, offset - Number(amount)))}>
            ← Earlier
          </button>
          <button type="button" disabled={found.length < Number(amount)} onClick={() => void look(offset + Number(amount))}>
            Later →
          </button>
        </div>
      )}
    </Panel>
  );
}

export function Publish(props: { vhost: string; exchange: string; routingKey: string; onDone?: () => void }): JSX.Element {
  const [key, setKey] = useState(props.routingKey);
  const [payload, setPayload] = useState("");
  const [encoding, setEncoding] = useState("string");
  const [mode, setMode] = useState("2");
  const [headers, setHeaders] = useState<Pair[]>([]);
  const [properties, setProperties] = useState<Pair[]>([]);
  const path = `exchanges/${quote(props.vhost, props.exchange || "amq.default")}/publish`;
  const body = {
    routing_key: key,
    payload,
    payload_encoding: encoding,
    properties: { delivery_mode: Number(mode), ...tableOf(properties), ...(headers.length ? { headers: tableOf(headers) } : {}) },
  };
  async function publish(event: Event): Promise<void> {
    event.preventDefault();
    await attempt(async () => {
      const answer = await act<{ routed: boolean }>("POST", path, body);
      if (answer?.routed) say("Published");
      else say("No queue took the message: nothing is bound with this key", "bad");
      props.onDone?.();
    });
  }
  return (
    <form class="form" onSubmit={(event) => void publish(event)}>
      <Field label="Routing key">
        <Text value={key} onChange={setKey} />
      </Field>
      <Field label="Kept on disk">
        <Choice
          value={mode}
          onChange={setMode}
          options={[
            ["2", "persistent"],
            ["1", "transient"],
          ]}
        />
      </Field>
      <Field label="Payload is">
        <Choice
          value={encoding}
          onChange={setEncoding}
          options={[
            ["string", "text"],
            ["base64", "base64"],
          ]}
        />
      </Field>
      <label class="field full">
        <span>Payload</span>
        <textarea rows={5} value={payload} onInput={(event) => setPayload(event.currentTarget.value)} />
      </label>
      <Pairs label="Headers" pairs={headers} onChange={setHeaders} />
      <Pairs label="Properties" pairs={properties} onChange={setProperties} known={["content_type", "correlation_id", "expiration", "message_id", "priority", "reply_to", "type"]} />
      <button type="submit" class="primary">
        Publish
      </button>
      <Same text={curlOf("POST", path, body)} />
    </form>
  );
}

const WAYS: [string, string, string][] = [
  ["ack_requeue_true", "Put them back", "They go back to their places, but are marked as redelivered from then on."],
  ["ack_requeue_false", "Take them out", "They will be gone from the queue for good; only this page will show them."],
  ["reject_requeue_false", "Reject them", "They leave the queue: as dead letters where it has a dead letter exchange, else for good."],
];

function Take({ queue, onChange }: { queue: Queue; onChange: () => void }): JSX.Element {
  const [amount, setAmount] = useState("1");
  const [way, setWay] = useState("ack_requeue_true");
  const [found, setFound] = useState<Message[] | null>(null);
  function take(event: Event): void {
    event.preventDefault();
    const [, , what] = WAYS.find(([key]) => key === way)!;
    const path = `queues/${quote(queue.vhost, queue.name)}/get`;
    const body = { count: Number(amount), ackmode: way, encoding: "auto", truncate: 50000 };
    ask({
      title: `Take ${plural(Number(amount), "message")} out of ${queue.name}?`,
      body: <p>{what}</p>,
      verb: "Take",
      isHarmless: way === "ack_requeue_true",
      typed: way === "ack_requeue_true" ? undefined : queue.name,
      command: curlOf("POST", path, body),
      run: async () => {
        setFound((await act<Message[]>("POST", path, body)) ?? []);
        onChange();
      },
    });
  }
  return (
    <>
      <form class="form" onSubmit={take}>
        <Field label="How many">
          <Text type="number" value={amount} onChange={setAmount} />
        </Field>
        <Field label="And then" hint={WAYS.find(([key]) => key === way)?.[2]}>
          <Choice value={way} onChange={setWay} options={WAYS.map(([key, title]) => [key, title])} />
        </Field>
        <button type="submit">Take …</button>
      </form>
      {found && found.length === 0 && <Empty title="The queue is empty." />}
      {found?.map((message, i) => <MessageView key={i} message={message} number={i + 1} />)}
    </>
  );
}

function Move({ queue, onChange }: { queue: Queue; onChange: () => void }): JSX.Element {
  const [to, setTo] = useState("");
  const [amount, setAmount] = useState("");
  function move(event: Event): void {
    event.preventDefault();
    const what = amount ? `the first ${plural(Number(amount), "message")}` : `all ${plural(queue.messages_ready ?? 0, "waiting message")}`;
    ask({
      title: `Move messages from ${queue.name} to ${to}?`,
      body: (
        <p>
          This moves {what}. Each is in <code>{to}</code> before it leaves <code>{queue.name}</code>; consumers of <code>{to}</code> get them as new.
        </p>
      ),
      verb: "Move",
      command: `warrenctl move -p ${shellWord(queue.vhost)} ${shellWord(queue.name)} ${shellWord(to)}`,
      run: async () => {
        const body = { to, ...(amount ? { count: Number(amount) } : {}) };
        const done = await act<{ moved: number; kept: number }>("POST", `queues/${quote(queue.vhost, queue.name)}/move`, body);
        say(`${plural(done?.moved ?? 0, "message")} moved, ${count(done?.kept ?? 0)} stayed`);
        onChange();
      },
    });
  }
  return (
    <form class="form" onSubmit={move}>
      <Field label="To queue" hint={`in virtual host ${queue.vhost}`}>
        <Text value={to} onChange={setTo} required />
      </Field>
      <Field label="How many" hint="all, when empty">
        <Text type="number" value={amount} onChange={setAmount} />
      </Field>
      <button type="submit">Move …</button>
    </form>
  );
}

function Redrive({ queue, onChange }: { queue: Queue; onChange: () => void }): JSX.Element {
  return (
    <div class="form">
      <p class="dim">
        For queues that gather dead letters; see <a href="#/dead-letters">Dead letters</a> for all of them by cause.
      </p>
      <button type="button" onClick={() => askRedrive(queue, onChange)}>
        Send back …
      </button>
    </div>
  );
}

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { may } from "../api";
import { askHarmless, commands, onQueues, type Outcome, told } from "../bulk";
import { age, bytes, clock, count, plural, short, shortNode } from "../format";
import { AddForm, YesOrNo } from "../parts/adding";
import { ask } from "../parts/dialog";
import { Drawer, DrawerButton } from "../parts/forms";
import { Badge, Empty, InVhost, Name, PageHead, Panel, Rate, stateTone } from "../parts/small";
import { List } from "../parts/table";
import { href } from "../router";
import { within } from "../state";
import type { Queue } from "../types";
import { rateOf } from "./channels";

const FIELDS = [
  "name",
  "vhost",
  "node",
  "state",
  "durable",
  "exclusive",
  "auto_delete",
  "arguments",
  "policy",
  "operator_policy",
  "messages",
  "messages_ready",
  "messages_unacknowledged",
  "consumers",
  "slave_nodes",
  "synchronised_slave_nodes",
  "damage",
  "message_stats.publish_details.rate",
  "message_stats.deliver_get_details.rate",
  "message_stats.ack_details.rate",
];

export const QUEUE_ARGUMENTS = [
  "x-message-ttl",
  "x-expires",
  "x-max-length",
  "x-max-length-bytes",
  "x-overflow",
  "x-dead-letter-exchange",
  "x-dead-letter-routing-key",
  "x-max-priority",
  "x-queue-mode",
  "x-single-active-consumer",
  "x-cancel-on-ha-failover",
];

function Features({ row }: { row: Queue }): JSX.Element {
  const given = Object.keys(row.arguments ?? {});
  const marks: [string, string, boolean][] = [
    ["D", "durable: survives a restart", Boolean(row.durable)],
    ["AD", "deleted when its last consumer leaves", Boolean(row.auto_delete)],
    ["Excl", "exclusive to one connection", Boolean(row.exclusive)],
    ["TTL", "messages expire", given.includes("x-message-ttl")],
    ["Lim", "its length is limited", given.some((key) => key.startsWith("x-max-length"))],
    ["DLX", "dead letters go on", given.includes("x-dead-letter-exchange")],
    ["Pri", "messages have priorities", given.includes("x-max-priority")],
    ["SAC", "one active consumer at a time", given.includes("x-single-active-consumer")],
  ];
  return (
    <span class="marks">
      {marks.map(([mark, title, isOn]) => isOn && <Badge title={title}>{mark}</Badge>)}
      {row.policy && (
        <a class="badge plain" href={href(["policies"], { name: row.policy })} title="policy">
          {row.policy}
        </a>
      )}
      {row.damage && (
        <Badge tone="bad" title={row.damage}>
          damaged
        </Badge>
      )}
    </span>
  );
}

export function MirrorMark({ row, isLong }: { row: Queue; isLong?: boolean }): JSX.Element | null {
  const mirrors = row.slave_nodes ?? [];
  if (mirrors.length === 0) return null;
  const inSync = row.synchronised_slave_nodes?.length ?? 0;
  const isWhole = inSync === mirrors.length;
  const few = isWhole ? `+${mirrors.length}` : `+${inSync} of ${mirrors.length}`;
  const text = isLong ? `${isWhole ? plural(inSync, "mirror") : `${inSync} of ${plural(mirrors.length, "mirror")}`} in sync` : few;
  return (
    <Badge tone={isWhole ? "good" : "warn"} title={`mirrors: ${mirrors.join(", ")}; ${inSync} synchronised`}>
      {text}
    </Badge>
  );
}

function sumOf(rows: Queue[], amount: (row: Queue) => number | undefined): number {
  return rows.reduce((sum, row) => sum + (amount(row) ?? 0), 0);
}

function list(rows: Queue[], field: "messages" | "messages_ready"): JSX.Element {
  return (
    <ul class="names">
      {rows.slice(0, 50).map((row) => (
        <li>
          <code>{row.name}</code> in <code>{row.vhost}</code>: {plural(row[field] ?? 0, "message")}
        </li>
      ))}
      {rows.length > 50 && <li>and {rows.length - 50} more</li>}
    </ul>
  );
}

export function askPurge(rows: Queue[], done: () => void): void {
  const messages = rows.reduce((sum, row) => sum + (row.messages_ready ?? 0), 0);
  const one = rows.length === 1 ? rows[0]! : null;
  ask({
    title: one ? `Purge queue ${one.name}?` : `Purge ${plural(rows.length, "queue")}?`,
    body: (
      <>
        <p>
          {plural(messages, "waiting message")} will be <strong>dropped for good</strong>. They do not become dead letters. Messages that consumers hold stay.
        </p>
        {list(rows, "messages_ready")}
      </>
    ),
    verb: `Drop ${plural(messages, "message")}`,
    typed: one ? one.name : `purge ${rows.length}`,
    command: commands("purge_queue", rows),
    run: () => onQueues("purge", rows).finally(done),
    outcome: (outcome) => told(outcome as Outcome, "purged"),
    done: `${plural(rows.length, "queue")} purged`,
  });
}

export function askDelete(rows: Queue[], done: () => void): void {
  const messages = rows.reduce((sum, row) => sum + (row.messages ?? 0), 0);
  const consumers = rows.reduce((sum, row) => sum + (row.consumers ?? 0), 0);
  const one = rows.length === 1 ? rows[0]! : null;
  ask({
    title: one ? `Delete queue ${one.name}?` : `Delete ${plural(rows.length, "queue")}?`,
    body: (
      <>
        <p>
          The {one ? "queue" : "queues"} and {plural(messages, "message")} will be <strong>gone for good</strong>, with all bindings
          {consumers > 0 && (
            <>
              , and <strong>{plural(consumers, "consumer")}</strong> will be cancelled
            </>
          )}
          .
        </p>
        {list(rows, "messages")}
      </>
    ),
    verb: `Delete ${plural(rows.length, "queue")}`,
    typed: one ? one.name : `delete ${rows.length}`,
    command: commands("delete_queue", rows),
    run: async () => {
      const outcome = await onQueues("delete", rows);
      done();
      return outcome;
    },
    outcome: (outcome) => told(outcome as Outcome, "deleted"),
    done: `${plural(rows.length, "queue")} deleted`,
  });
}

export function QueuesPage(): JSX.Element {
  return (
    <>
      <PageHead title="Queues">
        <DrawerButton title="Add a queue" />
      </PageHead>
      <Panel>
        <List<Queue>
          path={within("queues")}
          fields={FIELDS}
          noun="queues"
          keyOf={(row) => `${row.vhost} ${row.name}`}
          bulk={(rows, clear) => (
            <>
              <button type="button" onClick={() => askHarmless("pause", rows, clear)}>
                Pause …
              </button>
              <button type="button" onClick={() => askHarmless("resume", rows, clear)}>
                Resume …
              </button>
              {may.makePolicies() && (
                <button type="button" onClick={() => askHarmless("sync", rows, clear)}>
                  Synchronise …
                </button>
              )}
              <button type="button" onClick={() => askPurge(rows, clear)}>
                Purge …
              </button>
              <button type="button" class="danger" onClick={() => askDelete(rows, clear)}>
                Delete …
              </button>
            </>
          )}
          empty={
            <Empty title="There is no queue yet." command="warrenctl pub hello 'a first message'">
              Clients declare their queues themselves; so does this command. Or add one below.
            </Empty>
          }
          columns={[
            {
              title: "Name",
              sort: "name",
              show: (row) => (
                <>
                  <a href={href(["queues", row.vhost, row.name])}>
                    <Name text={row.name} />
                  </a>
                  <InVhost name={row.vhost} />
                </>
              ),
            },
            { title: "Virtual host", sort: "vhost", wide: true, hidden: true, show: (row) => <code>{row.vhost}</code> },
            { title: "Features", wide: true, show: (row) => <Features row={row} /> },
            {
              title: "Node",
              sort: "node",
              wide: true,
              show: (row) => (
                <>
                  {shortNode(row.node ?? "")} <MirrorMark row={row} />
                </>
              ),
            },
            { title: "State", sort: "state", show: (row) => <Badge tone={stateTone(row.state)}>{row.state ?? "?"}</Badge> },
            { title: "Ready", sort: "messages_ready", numeric: true, show: (row) => count(row.messages_ready), total: (rows) => count(sumOf(rows, (row) => row.messages_ready)) },
            { title: "Unacked", sort: "messages_unacknowledged", numeric: true, show: (row) => count(row.messages_unacknowledged), total: (rows) => count(sumOf(rows, (row) => row.messages_unacknowledged)) },
            {
              title: "Oldest",
              sort: "oldest_message_age_seconds",
              fields: ["oldest_message_age_seconds"],
              numeric: true,
              wide: true,
              show: (row) => age(row.oldest_message_age_seconds, row.messages),
            },
            { title: "Consumers", sort: "consumers", numeric: true, wide: true, show: (row) => short(row.consumers), total: (rows) => short(sumOf(rows, (row) => row.consumers)) },
            { title: "In", sort: "message_stats.publish_details.rate", numeric: true, wide: true, show: (row) => <Rate value={rateOf(row.message_stats, "publish")} />, total: (rows) => <Rate value={sumOf(rows, (row) => rateOf(row.message_stats, "publish"))} /> },
            { title: "Out", sort: "message_stats.deliver_get_details.rate", numeric: true, wide: true, show: (row) => <Rate value={rateOf(row.message_stats, "deliver_get")} />, total: (rows) => <Rate value={sumOf(rows, (row) => rateOf(row.message_stats, "deliver_get"))} /> },
            { title: "Acked", sort: "message_stats.ack_details.rate", numeric: true, wide: true, roomy: true, show: (row) => <Rate value={rateOf(row.message_stats, "ack")} />, total: (rows) => <Rate value={sumOf(rows, (row) => rateOf(row.message_stats, "ack"))} /> },
            {
              title: "Redelivered",
              sort: "message_stats.redeliver_details.rate",
              fields: ["message_stats.redeliver_details.rate"],
              numeric: true,
              wide: true,
              hidden: true,
              show: (row) => <Rate value={rateOf(row.message_stats, "redeliver")} />,
            },
            { title: "Total", sort: "messages", numeric: true, wide: true, hidden: true, show: (row) => count(row.messages) },
            { title: "Size", sort: "message_bytes", fields: ["message_bytes"], numeric: true, wide: true, hidden: true, show: (row) => bytes(row.message_bytes) },
            { title: "Memory", sort: "memory", fields: ["memory"], numeric: true, wide: true, hidden: true, show: (row) => bytes(row.memory) },
            { title: "Operator policy", wide: true, hidden: true, show: (row) => row.operator_policy },
            { title: "Idle since", fields: ["idle_since"], wide: true, hidden: true, show: (row) => row.idle_since && clock(Date.parse(row.idle_since)) },
          ]}
        />
      </Panel>
      <Drawer title="Add a queue">
        <AddQueue />
      </Drawer>
    </>
  );
}

function AddQueue(): JSX.Element {
  const [durable, setDurable] = useState(true);
  const [autoDelete, setAutoDelete] = useState(false);
  return (
    <AddForm noun="Queue" settings={{ durable, auto_delete: autoDelete }} known={QUEUE_ARGUMENTS}>
      <YesOrNo label="Durable" hint="Survives a restart" value={durable} onChange={setDurable} />
      <YesOrNo label="Auto-delete" hint="Goes when its last consumer leaves" value={autoDelete} onChange={setAutoDelete} />
    </AddForm>
  );
}

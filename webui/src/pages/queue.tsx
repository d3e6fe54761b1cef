import type { ComponentChildren, JSX } from "preact";

import { quote } from "../api";
import { askHarmless } from "../bulk";
import { age, bytes, clock, count, rate, short, shortNode } from "../format";
import { type Live, useLive } from "../live";
import { Chart } from "../parts/chart";
import { Arguments, Badge, Facts, Loaded, PageHead, Panel, stateTone, Tabs, Tile, Time } from "../parts/small";
import { Plain } from "../parts/table";
import { go, href, place } from "../router";
import { levelLines, rateLines, spanQuery } from "../samples";
import type { Queue } from "../types";
import { QueueBindings } from "./bindings";
import { rateOf } from "./channels";
import { CONSUMER_COLUMNS } from "./consumers";
import { QueueMessages } from "./messages";
import { QueueMirrors } from "./mirrors";
import { LENGTHS, MESSAGE_RATES, SpanChoice } from "./overview";
import { askDelete, askPurge, MirrorMark } from "./queues";
import { Unacked } from "./unacked";

const TABS: [string, string][] = [
  ["overview", "Overview"],
  ["messages", "Messages"],
  ["consumers", "Consumers"],
  ["unacked", "Unacked"],
  ["bindings", "Bindings"],
  ["mirrors", "Mirrors"],
];

export function QueuePage(props: { vhost: string; name: string; tab: string }): JSX.Element {
  const { vhost, name, tab } = props;
  const span = place.value.query.get("span") ?? "10m";
  const live = useLive<Queue>(`queues/${quote(vhost, name)}?${spanQuery(span, "lengths", "msg_rates")}`);
  return (
    <>
      <PageHead
        title={name}
        trail={[["Queues", "#/queues"]]}
        sub={
          <>
            in virtual host <code>{vhost}</code>
            {live.data && (
              <>
                , on {shortNode(live.data.node ?? "")} <MirrorMark row={live.data} isLong /> <Badge tone={stateTone(live.data.state)}>{live.data.state ?? "?"}</Badge>
              </>
            )}
          </>
        }
      >
        {live.data && (
          <>
            {tab === "overview" && <SpanChoice />}
            <button type="button" onClick={() => askHarmless(live.data!.paused ? "resume" : "pause", [live.data!], live.refresh)}>
              {live.data.paused ? "Resume consumers …" : "Pause consumers …"}
            </button>
            <button type="button" onClick={() => askPurge([live.data!], live.refresh)}>
              Purge …
            </button>
            <button type="button" class="danger" onClick={() => askDelete([live.data!], () => go(["queues"]))}>
              Delete …
            </button>
          </>
        )}
      </PageHead>
      <Tabs label="Parts of the queue" current={tab} tabs={TABS.map(([key, title]) => [key, title, href(["queues", vhost, name, ...(key === "overview" ? [] : [key])]), noteOf(key, live.data)])} />
      {live.data?.paused && (
        <div class="notice warn" role="status">
          <strong>Its consumers are paused.</strong>
          <span>
            {live.data.paused_by && `By ${live.data.paused_by}, `}
            {live.data.paused_at && <Time at={live.data.paused_at} />} Publishes go on; nothing is delivered, whatever node a client is connected to.
          </span>
        </div>
      )}
      <Loaded live={live}>{(queue) => <Part tab={tab} queue={queue} live={live} />}</Loaded>
    </>
  );
}

/** How much is behind a tab. */
function noteOf(tab: string, queue: Queue | null): string | undefined {
  if (!queue) return undefined;
  const amounts: Record<string, number | undefined> = { messages: queue.messages, consumers: queue.consumers, unacked: queue.messages_unacknowledged };
  const amount = tab === "mirrors" ? queue.slave_nodes?.length : amounts[tab];
  return amount ? short(amount) : undefined;
}

function Part({ tab, queue, live }: { tab: string; queue: Queue; live: Live<Queue> }): JSX.Element {
  if (tab === "messages") return <QueueMessages queue={queue} onChange={live.refresh} />;
  if (tab === "consumers") {
    return (
      <Panel>
        <Plain label="Consumers" rows={queue.consumer_details ?? []} keyOf={(row) => `${row.channel_details?.name}${row.consumer_tag}`} columns={CONSUMER_COLUMNS.filter(({ title }) => title !== "Queue")} empty={<strong>Nobody consumes from this queue.</strong>} />
      </Panel>
    );
  }
  if (tab === "unacked") return <Unacked queue={queue} />;
  if (tab === "bindings") return <QueueBindings queue={queue} />;
  if (tab === "mirrors") return <QueueMirrors queue={queue} />;
  return <Summary queue={queue} />;
}

function Summary({ queue }: { queue: Queue }): JSX.Element {
  const head = queue.head_message_timestamp;
  const rows: [string, ComponentChildren][] = [
    ["Durable", queue.durable ? "yes" : "no"],
    ["Auto-delete", queue.auto_delete ? "yes" : "no"],
    ["Exclusive", queue.exclusive ? "yes" : "no"],
    ["Policy", queue.policy ? <a href={href(["policies"], { name: queue.policy })}>{queue.policy}</a> : "none"],
    ["Operator policy", queue.operator_policy ?? "none"],
    ["In force by policies", <Arguments value={queue.effective_policy_definition} />],
    ["Arguments", <Arguments value={queue.arguments} />],
    ["Size of messages", bytes(queue.message_bytes)],
    ["Memory", bytes(queue.memory)],
    [
      "Oldest message came",
      queue.oldest_message_arrived_at ? (
        <Time at={queue.oldest_message_arrived_at} />
      ) : queue.messages ? (
        "unknown: it was logged by an older version"
      ) : (
        "there is none"
      ),
    ],
    ["First message made", head ? <Time at={head * 1000} /> : queue.messages_ready ? "unknown: its publisher set no timestamp" : "none waits"],
    ["Idle since", queue.idle_since ? clock(Date.parse(queue.idle_since)) : "busy"],
  ];
  return (
    <>
      {queue.damage && (
        <div class="notice bad" role="alert">
          <strong>Messages of this queue were damaged on disk.</strong>
          <span>
            {queue.damage}. What could be saved is under <a href="#/salvage">Salvage</a>.
          </span>
        </div>
      )}
      <div class="tiles">
        <Tile name="Ready" value={count(queue.messages_ready)} />
        <Tile name="Unacked" value={count(queue.messages_unacknowledged)} link={href(["queues", queue.vhost, queue.name, "unacked"])} />
        <Tile name="Oldest message" value={age(queue.oldest_message_age_seconds, queue.messages)} />
        <Tile name="Consumers" value={count(queue.consumers)} link={href(["queues", queue.vhost, queue.name, "consumers"])} />
        <Tile name="In" value={rate(rateOf(queue.message_stats, "publish"))} />
        <Tile name="Out" value={rate(rateOf(queue.message_stats, "deliver_get"))} />
      </div>
      <div class="two">
        <Panel title="Queued messages">
          <Chart title="Queued messages" lines={levelLines(queue as unknown as Record<string, number>, LENGTHS)} show={short} />
        </Panel>
        <Panel title="Message rates">
          <Chart title="Message rates" lines={rateLines(queue.message_stats, MESSAGE_RATES.filter(([field]) => field !== "confirm"))} show={rate} />
        </Panel>
      </div>
      <Panel title="Details">
        <Facts rows={rows} />
      </Panel>
    </>
  );
}

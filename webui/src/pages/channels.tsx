import type { JSX } from "preact";

import { quote } from "../api";
import { count, rate, shortNode } from "../format";
import { useLive } from "../live";
import { Chart } from "../parts/chart";
import { Badge, Empty, Facts, Loaded, PageHead, Panel, Rate, stateTone } from "../parts/small";
import { type Column, List, Plain } from "../parts/table";
import { href, place } from "../router";
import { type Details, rateLines, spanQuery } from "../samples";
import { vhost } from "../state";
import type { Consumer, Stats } from "../types";
import { CONSUMER_COLUMNS } from "./consumers";
import { MESSAGE_RATES, SpanChoice } from "./overview";

export interface Channel {
  name: string;
  number: number;
  vhost: string;
  user: string;
  node: string;
  state: string;
  confirm: boolean;
  transactional: boolean;
  prefetch_count: number;
  global_prefetch_count: number;
  messages_unacknowledged: number;
  messages_unconfirmed: number;
  messages_uncommitted?: number;
  consumer_count: number;
  connection_details: { name: string; user_provided_name?: string };
  message_stats?: Stats;
  consumer_details?: Consumer[];
}

export function rateOf(stats: Stats | undefined, name: string): number {
  return (stats?.[`${name}_details`] as Details | undefined)?.rate ?? 0;
}

export const CHANNEL_COLUMNS: Column<Channel>[] = [
  {
    title: "Channel",
    sort: "name",
    show: ({ name, number, connection_details: client }) => (
      <>
        <a href={href(["channels", name])}>{client.user_provided_name ? `${client.user_provided_name} (${number})` : name}</a>
        {client.user_provided_name && <div class="dim small wide">{name}</div>}
      </>
    ),
  },
  { title: "User", sort: "user", wide: true, show: (row) => row.user },
  { title: "Vhost", sort: "vhost", wide: true, show: (row) => <code>{row.vhost}</code> },
  { title: "Node", sort: "node", wide: true, show: (row) => shortNode(row.node) },
  {
    title: "Mode",
    wide: true,
    show: (row) => (
      <>
        {row.confirm && <Badge title="Publisher confirms">confirms</Badge>} {row.transactional && <Badge>transactions</Badge>}
      </>
    ),
  },
  { title: "Prefetch", sort: "prefetch_count", numeric: true, wide: true, show: (row) => row.prefetch_count || row.global_prefetch_count || "–" },
  { title: "Unacked", sort: "messages_unacknowledged", numeric: true, show: (row) => count(row.messages_unacknowledged) },
  { title: "Unconfirmed", sort: "messages_unconfirmed", numeric: true, wide: true, show: (row) => count(row.messages_unconfirmed) },
  { title: "Publish", sort: "message_stats.publish_details.rate", numeric: true, show: (row) => <Rate value={rateOf(row.message_stats, "publish")} /> },
  { title: "Deliver", sort: "message_stats.deliver_get_details.rate", numeric: true, show: (row) => <Rate value={rateOf(row.message_stats, "deliver_get")} /> },
];

export function ChannelsPage(): JSX.Element {
  return (
    <>
      <PageHead title="Channels" />
      <Panel>
        <List<Channel>
          path={vhost.value ? `vhosts/${quote(vhost.value)}/channels` : "channels"}
          noun="channels"
          keyOf={(row) => row.name}
          columns={CHANNEL_COLUMNS}
          empty={<Empty title="No channel is open." command="warrenctl list_connections" />}
        />
      </Panel>
    </>
  );
}

export function ChannelPage({ name }: { name: string }): JSX.Element {
  const span = place.value.query.get("span") ?? "10m";
  const live = useLive<Channel>(`channels/${quote(name)}?${spanQuery(span, "msg_rates")}`);
  return (
    <>
      <PageHead title={name} trail={[["Channels", "#/channels"]]} sub={live.data?.connection_details.user_provided_name && `of ${live.data.connection_details.user_provided_name}`}>
        <SpanChoice />
      </PageHead>
      <Loaded live={live}>
        {(row) => (
          <>
            <div class="two">
              <Panel title="Message rates">
                <Chart title="Message rates" lines={rateLines(row.message_stats, MESSAGE_RATES)} show={rate} />
              </Panel>
              <Panel title="Details" actions={<Badge tone={stateTone(row.state)}>{row.state}</Badge>}>
                <Facts
                  rows={[
                    ["Connection", <a href={href(["connections", row.connection_details.name])}>{row.connection_details.name}</a>],
                    ["User", row.user],
                    ["Virtual host", <code>{row.vhost}</code>],
                    ["Node", row.node],
                    ["Publisher confirms", row.confirm ? "on" : "off"],
                    ["Transactions", row.transactional ? "on" : "off"],
                    ["Prefetch of a consumer", row.prefetch_count || "no limit"],
                    ["Prefetch of the channel", row.global_prefetch_count || "no limit"],
                    ["Unacknowledged", count(row.messages_unacknowledged)],
                    ["Unconfirmed", count(row.messages_unconfirmed)],
                  ]}
                />
              </Panel>
            </div>
            <Panel title="Consumers">
              <Plain label="Consumers" rows={row.consumer_details ?? []} keyOf={(each) => each.consumer_tag} columns={CONSUMER_COLUMNS.filter(({ title }) => title !== "Channel" && title !== "User")} empty={<strong>Nothing is consumed on this channel.</strong>} />
            </Panel>
          </>
        )}
      </Loaded>
    </>
  );
}

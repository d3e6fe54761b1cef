import type { JSX } from "preact";

import { may } from "../api";
import { bytes, duration, plural, rate, short, shortNode } from "../format";
import { useLive } from "../live";
import { Chart } from "../parts/chart";
import { Choice } from "../parts/forms";
import { Badge, Bar, Loaded, PageHead, Panel, Tile } from "../parts/small";
import { Plain } from "../parts/table";
import { href, place, setQuery } from "../router";
import { levelLines, rateLines, SPANS, spanQuery } from "../samples";
import type { ClusterStatus, NodeInfo, Stats } from "../types";

interface Overview {
  cluster_name: string;
  warren_version?: string;
  node: string;
  message_stats: Stats;
  queue_totals: Stats;
  churn_rates: Stats;
  object_totals: Record<string, number>;
  listeners: { node: string; protocol: string; ip_address: string; port: number }[];
}

export const MESSAGE_RATES: [string, string][] = [
  ["publish", "Publish"],
  ["confirm", "Confirm"],
  ["deliver_get", "Deliver"],
  ["ack", "Acknowledge"],
  ["redeliver", "Redeliver"],
];
export const LENGTHS: [string, string][] = [
  ["messages", "Total"],
  ["messages_ready", "Ready"],
  ["messages_unacknowledged", "Unacked"],
];
const CHURN: [string, string][] = [
  ["connection_created", "Connections opened"],
  ["connection_closed", "Connections closed"],
  ["channel_created", "Channels opened"],
  ["queue_declared", "Queues declared"],
  ["queue_deleted", "Queues deleted"],
];

export function SpanChoice(): JSX.Element {
  const span = place.value.query.get("span") ?? "10m";
  return (
    <Choice
      label="Length of the history"
      value={span}
      onChange={(next) => setQuery({ span: next === "10m" ? null : next })}
      options={Object.entries(SPANS).map(([key, { title }]) => [key, title])}
    />
  );
}

export interface MirrorCount {
  mirrored: number;
  behind: number;
  down: number;
  examples: { vhost: string; name: string; state: string }[];
}

function mirrorsText({ mirrored, behind, down }: MirrorCount): string {
  if (mirrored === 0) return "";
  const lacking = [...(down ? [`${plural(down, "mirrored queue")} without a master`] : []), ...(behind ? [`${plural(behind, "mirrored queue")} with mirrors that are behind or down`] : [])];
  return lacking.length ? lacking.join(", ") : `all mirrors of ${plural(mirrored, "mirrored queue")} in sync`;
}

export interface Health {
  tone: "good" | "warn" | "bad";
  text: string;
}

/** The one sentence that says whether anything is wrong. */
export function healthOf(status: ClusterStatus | null, nodes: NodeInfo[] | null, mirrors: MirrorCount | null = null): Health | null {
  if (!nodes) return null;
  const running = nodes.filter((node) => node.running);
  const alarms = running.flatMap((node) => [
    ...(node.mem_alarm ? [`memory is short on ${shortNode(node.name)}`] : []),
    ...(node.disk_free_alarm ? [`disk is short on ${shortNode(node.name)}`] : []),
  ]);
  const parted = Object.entries(status?.partitions ?? {}).filter(([, others]) => others.length);
  const down = nodes.filter((node) => !node.running).map((node) => shortNode(node.name));
  const wrong = [
    ...(down.length ? [`${down.join(", ")} ${down.length === 1 ? "is" : "are"} down`] : []),
    ...parted.map(([node, others]) => `${shortNode(node)} does not see ${others.map(shortNode).join(", ")}`),
    ...alarms.map((alarm) => `${alarm}: publishers wait`),
  ];
  const text = `${running.length} of ${plural(nodes.length, "node")} running`;
  const copies = mirrors ? mirrorsText(mirrors) : "";
  const end = copies ? `; ${copies}` : "";
  if (wrong.length || mirrors?.down) return { tone: "bad", text: [text, ...wrong].join("; ") + end };
  return { tone: mirrors?.behind ? "warn" : "good", text: `${text}, no alarms, no partitions${end}` };
}

export function OverviewPage(): JSX.Element {
  const span = place.value.query.get("span") ?? "10m";
  const live = useLive<Overview>(`overview?${spanQuery(span, "lengths", "msg_rates")}`);
  const isMonitor = may.monitor();
  const nodes = useLive<NodeInfo[]>(isMonitor ? "nodes" : null);
  const status = useLive<ClusterStatus>(isMonitor ? "warren/cluster/status" : null);
  const mirrors = useLive<MirrorCount>("warren/mirrors");
  const health = healthOf(status.data, nodes.data, mirrors.data);
  const lacking = mirrors.data?.examples ?? [];
  return (
    <Loaded live={live}>
      {(data) => (
        <>
          <PageHead title="Overview" sub={`cluster ${data.cluster_name}, asked at ${shortNode(data.node)}, Warren ${data.warren_version ?? ""}`}>
            <SpanChoice />
          </PageHead>
          {health && (
            <p class={`health ${health.tone}`} role="status">
              <span aria-hidden="true">{{ good: "✓", warn: "!", bad: "✕" }[health.tone]}</span>
              <span>
                {health.text}
                {lacking.length > 0 && ": "}
                {lacking.slice(0, 5).map(({ vhost, name }, i) => [i > 0 && ", ", <a href={href(["queues", vhost, name, "mirrors"])}>{name}</a>])}
                {mirrors.data && mirrors.data.behind + mirrors.data.down > 5 && " …"}
              </span>
            </p>
          )}
          <div class="tiles">
            <Tile name="Ready" value={short(data.queue_totals.messages_ready as number)} note="messages waiting" />
            <Tile name="Unacked" value={short(data.queue_totals.messages_unacknowledged as number)} note="with consumers" />
            <Tile name="Queues" value={short(data.object_totals.queues)} link="#/queues" />
            <Tile name="Exchanges" value={short(data.object_totals.exchanges)} link="#/exchanges" />
            <Tile name="Connections" value={short(data.object_totals.connections)} link="#/connections" />
            <Tile name="Channels" value={short(data.object_totals.channels)} link="#/channels" />
            <Tile name="Consumers" value={short(data.object_totals.consumers)} />
          </div>
          <div class="two">
            <Panel title="Message rates">
              <Chart title="Message rates" lines={rateLines(data.message_stats, MESSAGE_RATES)} show={rate} />
            </Panel>
            <Panel title="Queued messages">
              <Chart title="Queued messages" lines={levelLines(data.queue_totals, LENGTHS)} show={short} />
            </Panel>
          </div>
          {nodes.data && <NodesTable nodes={nodes.data} status={status.data} title="Nodes" />}
          <div class="two">
            <Panel title="Coming and going">
              <Chart title="Coming and going" lines={rateLines(data.churn_rates, CHURN)} show={rate} />
            </Panel>
            <Panel title="Ports">
              <Plain
                label="Ports"
                rows={data.listeners}
                keyOf={(row) => `${row.node}${row.protocol}${row.port}`}
                columns={[
                  { title: "Node", show: (row) => shortNode(row.node) },
                  { title: "Protocol", show: (row) => row.protocol },
                  { title: "Address", show: (row) => <code>{`${row.ip_address}:${row.port}`}</code> },
                ]}
              />
            </Panel>
          </div>
        </>
      )}
    </Loaded>
  );
}

export function NodesTable({ nodes, status, title }: { nodes: NodeInfo[]; status: ClusterStatus | null; title?: string }): JSX.Element {
  const roles = new Map(status?.nodes.map((node) => [node.name, node.role]));
  return (
    <Panel title={title}>
      <Plain
        label="Nodes"
        rows={nodes}
        keyOf={(node) => node.name}
        columns={[
          { title: "Name", show: (node) => <a class="whole" href={href(["nodes", node.name])}>{node.name}</a> },
          {
            title: "State",
            show: (node) => (
              <>
                <Badge tone={node.running ? "good" : "bad"}>{node.running ? "running" : "down"}</Badge>{" "}
                {roles.get(node.name) === "leader" && <Badge tone="accent">metadata leader</Badge>}
              </>
            ),
          },
          {
            title: "Memory",
            show: (node) =>
              node.running && (
                <span class="gauge">
                  <Bar label={`Memory of ${node.name}`} part={node.mem_used ?? 0} whole={node.mem_limit ?? 0} tone={node.mem_alarm ? "bad" : "accent"} />
                  <span class="num" title={`publishers wait above ${bytes(node.mem_limit)}`}>{bytes(node.mem_used)}</span>
                </span>
              ),
          },
          { title: "Disk free", wide: true, numeric: true, show: (node) => node.running && bytes(node.disk_free) },
          {
            title: "Descriptors",
            wide: true,
            numeric: true,
            show: (node) => node.running && `${short(node.fd_used)} of ${short(node.fd_total)}`,
          },
          { title: "Uptime", wide: true, numeric: true, show: (node) => node.running && node.uptime !== undefined && duration(node.uptime) },
        ]}
      />
    </Panel>
  );
}

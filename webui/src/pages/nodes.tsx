import type { JSX } from "preact";

import { quote } from "../api";
import { bytes, count, duration, rate, short } from "../format";
import { useLive } from "../live";
import { Chart } from "../parts/chart";
import { Badge, Bar, Empty, Facts, Loaded, PageHead, Panel } from "../parts/small";
import { place } from "../router";
import { begun, levelLines, rateLines, spanQuery } from "../samples";
import type { ClusterStatus, NodeInfo } from "../types";
import { NodesTable, SpanChoice } from "./overview";

export function NodesPage(): JSX.Element {
  const nodes = useLive<NodeInfo[]>("nodes");
  const status = useLive<ClusterStatus>("warren/cluster/status");
  return (
    <>
      <PageHead title="Nodes" sub="All nodes of the cluster, also those that are down." />
      <Loaded live={nodes}>{(data) => <NodesTable nodes={data} status={status.data} />}</Loaded>
    </>
  );
}

function Gauge(props: { name: string; used?: number; limit?: number; show: (value: number) => string; alarm?: boolean }): JSX.Element {
  return (
    <div class="gauge-row">
      <span>{props.name}</span>
      <Bar label={props.name} part={props.used ?? 0} whole={props.limit ?? 0} tone={props.alarm ? "bad" : "accent"} />
      <span class="num">
        {props.used === undefined ? "–" : props.show(props.used)} of {props.limit ? props.show(props.limit) : "–"}
      </span>
    </div>
  );
}

export function NodePage({ name }: { name: string }): JSX.Element {
  const span = place.value.query.get("span") ?? "10m";
  const live = useLive<NodeInfo>(`nodes/${quote(name)}?${spanQuery(span, "node_stats")}`);
  const memory = useLive<{ memory: Record<string, unknown> }>(`nodes/${quote(name)}/memory`, 15000);
  return (
    <>
      <PageHead title={name} trail={[["Nodes", "#/nodes"]]}>
        <SpanChoice />
      </PageHead>
      <Loaded live={live}>
        {(node) =>
          node.running ? (
            <>
              <div class="two">
                <Panel title="Right now" actions={<Badge tone="good">running</Badge>}>
                  <Gauge name="Memory" used={node.mem_used} limit={node.mem_limit} show={bytes} alarm={node.mem_alarm} />
                  <Gauge name="Descriptors" used={node.fd_used} limit={node.fd_total} show={count} />
                  <Gauge name="Sockets" used={node.sockets_used} limit={node.fd_total} show={count} />
                  <Facts
                    rows={[
                      ["Disk free", `${bytes(node.disk_free)} (publishers wait below ${bytes(node.disk_free_limit)})`],
                      ["Uptime", duration(node.uptime)],
                      ["Process", <code>{node.os_pid}</code>],
                      ["Processors", node.processors],
                      ["Data directory", node.db_dir ? <code>{node.db_dir}</code> : "none: nothing is kept"],
                    ]}
                  />
                </Panel>
                <Panel title="Memory">
                  <Chart title="Memory" lines={begun(levelLines(node, [["mem_used", "Used"]]))} show={bytes} isBytes />
                  {memory.data && <MemoryParts parts={memory.data.memory} />}
                </Panel>
              </div>
              <div class="two">
                <Panel title="Descriptors">
                  <Chart
                    title="Descriptors"
                    lines={begun(
                      levelLines(node, [
                        ["fd_used", "Descriptors"],
                        ["sockets_used", "Sockets"],
                      ]),
                    )}
                    show={short}
                  />
                </Panel>
                <Panel title="Coming and going">
                  <Chart
                    title="Coming and going"
                    lines={rateLines(node, [
                      ["connection_created", "Connections"],
                      ["channel_created", "Channels"],
                      ["queue_declared", "Queues"],
                    ])}
                    show={rate}
                  />
                </Panel>
              </div>
            </>
          ) : (
            <Panel>
              <Empty title="This node is down, or cannot be reached from the one that was asked." command="warrenctl cluster_status">
                Queues whose only copy is there wait for it.
              </Empty>
            </Panel>
          )
        }
      </Loaded>
    </>
  );
}

function MemoryParts({ parts }: { parts: Record<string, unknown> }): JSX.Element {
  const messages = Number(parts.binary ?? 0);
  const rest = Number(parts.other_system ?? 0);
  return (
    <Facts
      rows={[
        ["Bodies of messages", bytes(messages)],
        ["All else", bytes(rest)],
      ]}
    />
  );
}

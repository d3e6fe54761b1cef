import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { act, get, may } from "../api";
import { clock, plural, shortNode } from "../format";
import { useLive } from "../live";
import { useWidth } from "../parts/chart";
import { ask } from "../parts/dialog";
import { Badge, Json, Loaded, PageHead, Panel, Tabs, Time } from "../parts/small";
import { List } from "../parts/table";
import { href } from "../router";
import { follow } from "../sse";
import { within } from "../state";
import { joined, lanes, NAMES, OWN_NAMES, toneOf, wording } from "../timeline";
import type { ClusterEvent, ClusterStatus, Queue } from "../types";

const EVENTS_MAX = 500;

export function ClusterPage({ tab }: { tab: string }): JSX.Element {
  const live = useLive<ClusterStatus>("warren/cluster/status", 2000);
  return (
    <>
      <PageHead title="Cluster" sub={live.data?.cluster_name}>
        {may.administrate() && (
          <button
            type="button"
            onClick={() =>
              ask({
                title: "Rebalance the masters of queues?",
                body: <p>Masters move to nodes that have fewer, where an in-sync mirror of theirs is. Each queue pauses for a moment; nothing is lost.</p>,
                verb: "Rebalance",
                isHarmless: true,
                command: "warrenctl rebalance all",
                run: () => act("POST", "rebalance/queues", {}),
                done: "Begun",
              })
            }
          >
            Rebalance …
          </button>
        )}
      </PageHead>
      <Loaded live={live}>{(status) => <Members status={status} />}</Loaded>
      <Tabs
        label="Parts of the cluster"
        current={tab}
        tabs={[
          ["timeline", "Timeline", href(["cluster"])],
          ["matrix", "Queues by node", href(["cluster", "matrix"])],
        ]}
      />
      {tab === "matrix" ? <Matrix nodes={live.data?.nodes.map((node) => node.name) ?? []} /> : <Timeline status={live.data} />}
    </>
  );
}

function Members({ status }: { status: ClusterStatus }): JSX.Element {
  const parted = Object.entries(status.partitions).filter(([, others]) => others.length > 0);
  return (
    <>
      {parted.length > 0 && (
        <div class="notice bad" role="alert">
          <strong>The network is parted.</strong>
          <span>{parted.map(([node, others]) => `${shortNode(node)} does not see ${others.map(shortNode).join(", ")}`).join("; ")}</span>
        </div>
      )}
      <div class="tiles members">
        {status.nodes.map((node) => (
          <a class={`tile ${node.running ? "" : "down"}`} href={href(["nodes", node.name])} key={node.name}>
            <span class="tile-name">{node.name === status.node ? "asked here" : "\u00a0"}</span>
            <span class="tile-value">{shortNode(node.name)}</span>
            <span class="tile-note">
              <Badge tone={node.running ? "good" : "bad"}>{node.running ? "running" : "down"}</Badge> {node.role === "leader" && <Badge tone="accent">metadata leader</Badge>}{" "}
              {node.alarms?.map((alarm) => <Badge tone="bad">{alarm}</Badge>)}
            </span>
          </a>
        ))}
      </div>
    </>
  );
}

// -- the timeline

function useEvents(): { events: ClusterEvent[]; isConnected: boolean; failed: string | null } {
  const [events, setEvents] = useState<ClusterEvent[]>([]);
  const [isConnected, setConnected] = useState(false);
  const [failed, setFailed] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    const names = `names=${NAMES.join(",")}`;
    const add = (news: ClusterEvent[]) => setEvents((before) => joined(before, news, EVENTS_MAX));
    async function run(): Promise<void> {
      try {
        const first = await get<ClusterEvent[]>(`cluster/events?${names}`, abort.signal);
        add(first);
        const since = String(first.at(-1)?.id ?? 0);
        await follow(`cluster/events/stream?${names}`, since, (event) => add([JSON.parse(event.data) as ClusterEvent]), setConnected, abort.signal);
      } catch (error) {
        if (!abort.signal.aborted) setFailed((error as Error).message);
      }
    }
    void run();
    return () => abort.abort();
  }, []);
  return { events, isConnected, failed };
}

function Timeline({ status }: { status: ClusterStatus | null }): JSX.Element {
  const { events: own, isConnected, failed } = useEvents();
  const theirs = useLive<ClusterEvent[]>(`warren/events?names=${OWN_NAMES.join(",")}`, 2000);
  const events = joined(own, theirs.data?.filter((event) => event.seen_by !== status?.node) ?? [], EVENTS_MAX);
  const nodes = status?.nodes.map((node) => node.name) ?? [];
  return (
    <>
      {failed && <div class="notice warn">{failed}</div>}
      <Panel title="What happened" actions={<Badge tone={isConnected ? "good" : "warn"}>{isConnected ? "live" : "not connected"}</Badge>}>
        <Lanes events={events} nodes={nodes} asked={status?.node ?? ""} />
        <ol class="events" aria-label="Events, newest first">
          {[...events].reverse().map((event) => (
            <li key={`${event.seen_by ?? ""} ${event.id}`} class={toneOf(event)}>
              <details>
                <summary>
                  <span class="dot" aria-hidden="true" />
                  <Time at={event.timestamp} /> <span class="event-text">{wording(event)}</span> {event.seen_by && <span class="dim">on {shortNode(event.seen_by)}</span>}
                </summary>
                <Json value={event} />
              </details>
            </li>
          ))}
        </ol>
        {events.length === 0 && <p class="dim">Nothing has happened since this node started.</p>}
      </Panel>
    </>
  );
}

const LANE = 30;
const LEFT = 90;

function Lanes(props: { events: ClusterEvent[]; nodes: string[]; asked: string }): JSX.Element | null {
  const [box, width] = useWidth();
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const rows = lanes(props.events, props.nodes, props.asked);
  const first = props.events[0]?.timestamp ?? now;
  // At least a minute, so that the first events are not at both ends at once.
  const from = Math.min(first, now - 60000);
  const x = (at: number) => LEFT + ((width - LEFT - 12) * (at - from)) / Math.max(1, now - from);
  const height = rows.length * LANE + 24;
  return (
    <div ref={box} class="lanes">
      <svg width={width} height={height} role="img" aria-label={`Timeline of ${plural(rows.length, "node")}, ${plural(props.events.length, "event")}`}>
        {rows.map((lane, i) => {
          const y = i * LANE + LANE / 2;
          return (
            <g key={lane.node}>
              <text class="lane-name" x={0} y={y + 4}>
                {shortNode(lane.node)}
              </text>
              <line class="lane-up" x1={LEFT} x2={width - 12} y1={y} y2={y} />
              {lane.down.map((span) => (
                <rect key={span.from} class="lane-down" x={x(span.from)} y={y - 7} width={Math.max(3, x(span.to ?? now) - x(span.from))} height={14} rx={3}>
                  <title>{`${lane.node} down ${clock(span.from)} to ${span.to ? clock(span.to) : "now"}`}</title>
                </rect>
              ))}
              {lane.marks.map((mark) => (
                <circle key={`${mark.event.seen_by ?? ""} ${mark.event.id}`} class={`lane-mark ${toneOf(mark.event)}`} cx={x(mark.at)} cy={y} r={4.5}>
                  <title>{`${clock(mark.at)} ${wording(mark.event)}`}</title>
                </circle>
              ))}
            </g>
          );
        })}
        <text class="tick" x={LEFT} y={height - 4}>
          {clock(from)}
        </text>
        <text class="tick" x={width - 12} y={height - 4} text-anchor="end">
          now
        </text>
      </svg>
    </div>
  );
}

// -- queues by node

function cell(queue: Queue, node: string): { sign: string; title: string; tone: string } {
  if (queue.node === node) return { sign: "●", title: "master", tone: "master" };
  const mirrors = queue.slave_nodes ?? queue.mirror_nodes ?? [];
  if (!mirrors.includes(node)) return { sign: "·", title: "no copy", tone: "none" };
  const inSync = (queue.synchronised_slave_nodes ?? queue.synchronised_mirror_nodes ?? []).includes(node);
  return inSync ? { sign: "○", title: "mirror, synchronised", tone: "mirror" } : { sign: "◌", title: "mirror, not synchronised", tone: "behind" };
}

function Matrix({ nodes }: { nodes: string[] }): JSX.Element {
  return (
    <Panel>
      <p class="dim small key">● master, ○ synchronised mirror, ◌ mirror that is behind, · no copy</p>

      <List<Queue>
        path={within("queues")}
        fields={["name", "vhost", "node", "state", "slave_nodes", "synchronised_slave_nodes", "mirror_nodes", "synchronised_mirror_nodes"]}
        noun="queues"
        keyOf={(row) => `${row.vhost} ${row.name}`}
        columns={[
          { title: "Queue", sort: "name", show: (row) => <a href={href(["queues", row.vhost, row.name, "mirrors"])}>{row.name}</a> },
          ...nodes.map((node) => ({
            title: shortNode(node),
            show: (row: Queue) => {
              const { sign, title, tone } = cell(row, node);
              return (
                <span class={`cell ${tone}`} title={`${node}: ${title}`} role="img" aria-label={title}>
                  {sign}
                </span>
              );
            },
          })),
        ]}
      />
    </Panel>
  );
}

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { get, may } from "../api";
import { clock, plural, shortNode } from "../format";
import { useLive } from "../live";
import { useWidth } from "../parts/chart";
import { Choice } from "../parts/forms";
import { Badge, Json, Loaded, Name, PageHead, Panel, stateTone, Tabs, Time } from "../parts/small";
import { List } from "../parts/table";
import { askRebalance } from "../rebalance";
import { href, place, setQuery } from "../router";
import { follow } from "../sse";
import { within } from "../state";
import { grouped, groupWording, isBusy, joined, keyOf, lanes, NAMES, OWN_NAMES, toneOf, withLosses, wording } from "../timeline";
import { TryOut } from "../tryout";
import type { ClusterEvent, ClusterStatus, Queue } from "../types";

const EVENTS_MAX = 500;

export function ClusterPage({ tab }: { tab: string }): JSX.Element {
  const live = useLive<ClusterStatus>("warren/cluster/status", 2000);
  return (
    <>
      <PageHead title="Cluster" sub={live.data && `called ${live.data.cluster_name}`}>
        {may.administrate() && (
          <button type="button" onClick={askRebalance}>
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
      {tab === "matrix" ? <Matrix nodes={live.data?.nodes.map((node) => node.name) ?? []} down={live.data?.nodes.filter((node) => !node.running).map((node) => node.name) ?? []} /> : <Timeline status={live.data} />}
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
      <div class={`tiles members ${status.nodes.length > 12 ? "many" : ""}`}>
        {status.nodes.map((node) => (
          <a class={`tile ${node.running ? "" : "down"}`} href={href(["nodes", node.name])} key={node.name} title={node.name}>
            <span class="tile-value">{shortNode(node.name)}</span>
            <span class="tile-note">
              <Badge tone={node.running ? "good" : "bad"}>{node.running ? "running" : "down"}</Badge> {node.role === "leader" && <Badge tone="accent">metadata leader</Badge>} {node.name === status.node && <Badge title="this page comes from it">this node</Badge>}{" "}
              {node.alarms?.map((alarm) => <Badge tone="bad">{alarm}</Badge>)}
            </span>
          </a>
        ))}
      </div>
      <TryOut status={status} />
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
        const first = await get<ClusterEvent[]>(`cluster/events?${names}&last=${EVENTS_MAX}`, abort.signal);
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
  const theirs = useTheirs(status?.node);
  const all = withLosses(joined(own, theirs, 2 * EVENTS_MAX));
  const nodes = status?.nodes.map((node) => node.name) ?? [];
  const span = place.value.query.get("span") ?? "1h";
  const lengthMs = SPANS[span]?.[1] ?? null;
  const events = lengthMs === null ? all : all.filter((event) => event.timestamp > Date.now() - lengthMs);
  return (
    <>
      {failed && <div class="notice warn">{failed}</div>}
      <Panel
        title="What happened"
        actions={
          <>
            <Choice
              label="Length of the timeline"
              value={span}
              onChange={(next) => setQuery({ span: next === "1h" ? null : next })}
              options={Object.entries(SPANS).map(([key, [title]]) => [key, title])}
            />
            <Badge tone={isConnected ? "good" : "warn"}>{isConnected ? "live" : "connecting again …"}</Badge>
          </>
        }
      >
        <Lanes events={all} nodes={nodes} asked={status?.node ?? ""} lengthMs={lengthMs} onMark={(event) => open(grouped(events).find((group) => group.events.includes(event))?.first)} />
        <p class="dim small lanes-key">
          <span class="key-up" /> up <span class="key-down" /> down <span class="key-copy" /> a mirror is filled <span class="key-mark" /> an event
        </p>
        <ol class="events" aria-label="Events, newest first">
          {grouped(events).map((group) => (
            <li key={keyOf(group.first)} class={toneOf(group.first)}>
              <details id={`event-${keyOf(group.first)}`}>
                <summary>
                  <span class="dot" aria-hidden="true" />
                  <Time at={group.first.timestamp} /> <span class="event-text">{groupWording(group)}</span>{" "}
                  {group.first.seen_by && <span class="dim">seen by {shortNode(group.first.seen_by)}</span>}
                </summary>
                {group.events.slice(0, SHOWN_OF_GROUP).map((event) => (
                  <div class="event-json">
                    <Json value={event} />
                  </div>
                ))}
                <p class="small">
                  <a href={href(["log"], { node: group.first.seen_by ?? status?.node ?? "", name: String(group.first.details.name ?? group.first.details.node ?? "") })}>The log of {shortNode(group.first.seen_by ?? status?.node ?? "")} about it</a>
                </p>
                {group.events.length > SHOWN_OF_GROUP && <p class="dim">and {group.events.length - SHOWN_OF_GROUP} more</p>}
              </details>
            </li>
          ))}
        </ol>
        {events.length === 0 && (
          <p class="dim">{all.length ? "Nothing has happened in this time." : "Nothing has happened yet: what nodes see happen is kept on their disks, and shown here."}</p>
        )}
      </Panel>
    </>
  );
}

/** What only others have seen; after the first answer they are asked for news. */
function useTheirs(asked: string | undefined): ClusterEvent[] {
  const [found, setFound] = useState<ClusterEvent[]>([]);
  const [after, setAfter] = useState(0);
  const live = useLive<ClusterEvent[]>(`warren/events?names=${OWN_NAMES.join(",")}&after=${after}`, 2000);
  useEffect(() => {
    if (!live.data?.length) return;
    setFound((before) => joined(before, live.data!, EVENTS_MAX));
    // Clocks differ a little, and what a node could not be asked for comes later.
    setAfter((before) => Math.max(before, (live.data!.at(-1)?.timestamp ?? 0) - OVERLAP_MS));
  }, [live.data]);
  return found.filter((event) => event.seen_by !== asked);
}

const OVERLAP_MS = 60_000;
const SHOWN_OF_GROUP = 20;
const SPANS: Record<string, [string, number | null]> = {
  "10m": ["10 min", 600_000],
  "1h": ["1 h", 3_600_000],
  "24h": ["24 h", 86_400_000],
  "7d": ["7 d", 604_800_000],
  all: ["all", null],
};
/** With more nodes than that, those that nothing happened to have no lane. */
const LANES_MAX = 20;
const LANE = 30;
const LEFT = 90;
/** Ticks along the time, first and last among them. */
const TICKS = 5;

/** Shows all of an event, in the list under the lanes, where keys reach it too. */
function open(event: ClusterEvent | undefined): void {
  const found = event && document.getElementById(`event-${keyOf(event)}`);
  if (!(found instanceof HTMLDetailsElement)) return;
  found.open = true;
  found.scrollIntoView({ block: "center" });
  found.querySelector("summary")?.focus();
}

function Lanes(props: { events: ClusterEvent[]; nodes: string[]; asked: string; lengthMs: number | null; onMark: (event: ClusterEvent) => void }): JSX.Element | null {
  const [box, width] = useWidth();
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const first = props.events[0]?.timestamp ?? now;
  // At least a minute, so that the first events are not at both ends at once; no more than there is.
  const longest = props.lengthMs === null ? first : Math.max(first - 5000, now - props.lengthMs);
  const from = Math.min(longest, now - 60000);
  const x = (at: number) => LEFT + ((width - LEFT - 12) * (Math.max(at, from) - from)) / Math.max(1, now - from);
  const all = lanes(props.events, props.nodes, props.asked);
  const rows = all.length > LANES_MAX ? all.filter((lane) => isBusy(lane, from)) : all;
  const isSeen = (span: { to: number | null }) => span.to === null || span.to > from;
  const tickCount = width > 600 ? TICKS : 2;
  const ticks = Array.from({ length: tickCount }, (_, i) => from + ((now - from) * i) / (tickCount - 1));
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
              {lane.copies.filter(isSeen).map((copy) => (
                <rect key={`${copy.from} ${copy.name}`} class={`lane-copy ${copy.how ?? "going"}`} x={x(copy.from)} y={y + 5} width={Math.max(4, x(copy.to ?? now) - x(copy.from))} height={6} rx={2}>
                  <title>{`${copy.name} in ${copy.vhost} copied to ${lane.node}: ${clock(copy.from)} to ${copy.to ? clock(copy.to) : "now"}${copy.how ? `, ${copy.how}` : ""}`}</title>
                </rect>
              ))}
              {lane.down.filter(isSeen).map((span) => (
                <rect key={span.from} class="lane-down" x={x(span.from)} y={y - 7} width={Math.max(3, x(span.to ?? now) - x(span.from))} height={14} rx={3}>
                  <title>{`${lane.node} down ${clock(span.from)} to ${span.to ? clock(span.to) : "now"}`}</title>
                </rect>
              ))}
              {lane.marks.filter((mark) => mark.at >= from).map((mark) => (
                <circle key={keyOf(mark.event)} class={`lane-mark ${toneOf(mark.event)}`} cx={x(mark.at)} cy={y} r={4.5} onClick={() => props.onMark(mark.event)}>
                  <title>{`${clock(mark.at)} ${wording(mark.event)}`}</title>
                </circle>
              ))}
            </g>
          );
        })}
        {ticks.map((at, i) => (
          <text key={i} class="tick" x={x(at)} y={height - 4} text-anchor={i === 0 ? "start" : i === ticks.length - 1 ? "end" : "middle"}>
            {i === ticks.length - 1 ? "now" : clock(at)}
          </text>
        ))}
      </svg>
      {rows.length < all.length && <p class="dim small">{plural(all.length - rows.length, "node")} that nothing happened to in this time are left out.</p>}
    </div>
  );
}

// -- queues by node

type Kind = "master" | "mirror" | "behind" | "none";

const KINDS: Record<Kind, string> = { master: "master", mirror: "synchronised mirror", behind: "mirror that is behind", none: "no copy" };

function kindOf(queue: Queue, node: string): Kind {
  if (queue.node === node) return "master";
  if (!(queue.slave_nodes ?? []).includes(node)) return "none";
  return (queue.synchronised_slave_nodes ?? []).includes(node) ? "mirror" : "behind";
}

/** A full disc, a ring, a hatched one with a gap, a dot: they differ without their colours. */
function Sign({ kind, title }: { kind: Kind; title?: string }): JSX.Element {
  return (
    <svg class={`cell ${kind}`} width="18" height="18" viewBox="0 0 18 18" role={title ? "img" : undefined} aria-label={title} aria-hidden={title ? undefined : "true"}>
      {title && <title>{title}</title>}
      <circle cx="9" cy="9" r={kind === "none" ? 1.5 : 6.5} />
    </svg>
  );
}

function Matrix({ nodes, down }: { nodes: string[]; down: string[] }): JSX.Element {
  return (
    <Panel class="matrix">
      <p class="dim small key">
        {(Object.keys(KINDS) as Kind[]).map((kind) => (
          <span key={kind} class="key-item">
            <Sign kind={kind} /> {KINDS[kind]}
          </span>
        ))}
      </p>
      <List<Queue>
        path={within("queues")}
        fields={["name", "vhost", "node", "state", "slave_nodes", "synchronised_slave_nodes"]}
        noun="queues"
        name="matrix"
        keyOf={(row) => `${row.vhost} ${row.name}`}
        columns={[
          { title: "Queue", sort: "name", show: (row) => (
              <a href={href(["queues", row.vhost, row.name, "mirrors"])}>
                <Name text={row.name} />
              </a>
            ),
          },
          { title: "State", wide: true, show: (row) => <Badge tone={stateTone(row.state)}>{row.state ?? "?"}</Badge> },
          ...nodes.map((node) => ({
            title: down.includes(node) ? `${shortNode(node)} (down)` : shortNode(node),
            centred: true,
            show: (row: Queue) => {
              const kind = kindOf(row, node);
              return <Sign kind={kind} title={`${KINDS[kind]} on ${node}`} />;
            },
          })),
        ]}
        foot={(rows) => (
          <tr>
            <td>On this page</td>
            <td class="wide" />
            {nodes.map((node) => {
              const kinds = rows.map((row) => kindOf(row, node));
              return (
                <td class="centred" key={node}>
                  {plural(kinds.filter((kind) => kind === "master").length, "master")}, {plural(kinds.filter((kind) => kind === "mirror" || kind === "behind").length, "mirror")}
                </td>
              );
            })}
          </tr>
        )}
      />
    </Panel>
  );
}

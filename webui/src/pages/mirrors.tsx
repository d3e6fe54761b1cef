import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, may, quote } from "../api";
import { bytes, count, duration, shellWord, shortNode } from "../format";
import { useLive } from "../live";
import { ask } from "../parts/dialog";
import { Choice } from "../parts/forms";
import { Badge, Bar, Failure, Panel, stateTone, Time } from "../parts/small";
import { Plain } from "../parts/table";
import { askRebalance } from "../rebalance";
import { href } from "../router";
import { asMirrors, boundsOf, draw, fallbackExplanation, LINE, syncText } from "../ring";
import type { Mirrors, Queue, Replica } from "../types";

const SIZE = 420;
const CENTER = SIZE / 2;
const RADIUS = 130;
const SPOT = 40;

/** Solid: synchronised. Hatched: not. Dashed: down. So it can be read without colours, too. */
function Ring({ mirrors }: { mirrors: Mirrors }): JSX.Element {
  const { spots, hops } = draw(mirrors.replicas, CENTER, RADIUS, SPOT);
  // As much of the ground as is drawn on, and no more.
  const box = boundsOf(spots, hops, SPOT);
  const label = spots.map(({ replica }) => `${replica.node}: ${describe(replica)}`).join("; ");
  return (
    <svg class="ring" viewBox={`${box.x} ${box.y} ${box.width} ${box.height}`} style={{ maxWidth: `${box.width}px` }} role="img" aria-label={`The ring of the queue. ${label}`}>
      <defs>
        <pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
          <rect width="7" height="7" class="hatch-ground" />
          <line x1="0" y1="0" x2="0" y2="7" class="hatch-line" />
        </pattern>
        <marker id="arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
          <path d="M0 0 L8 4 L0 8 z" class="arrow" />
        </marker>
        <marker id="broken-arrow" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
          <path d="M0 0 L8 4 L0 8 z" class="arrow broken" />
        </marker>
      </defs>
      {hops.map((hop) => (
        <g key={`${hop.from} ${hop.to}`}>
          <path class={`hop ${hop.isBroken ? "broken" : ""}`} d={hop.path} marker-end={hop.isBroken ? "url(#broken-arrow)" : "url(#arrow)"} />
          <text class="hop-label" x={hop.x} y={hop.y} text-anchor={hop.anchor} dominant-baseline="middle">
            {hop.label}
            {hop.detail && (
              <tspan x={hop.x} dy={LINE}>
                {hop.detail}
              </tspan>
            )}
          </text>
        </g>
      ))}
      {spots.map(({ replica, x, y }) => (
        <g key={replica.node} class={`spot ${kindOf(replica)}`}>
          {replica.role === "master" && <circle class="crown" cx={x} cy={y} r={SPOT + 6} />}
          <circle class="body" cx={x} cy={y} r={SPOT} fill={replica.synchronised || replica.online === false ? undefined : "url(#hatch)"} />
          <rect class="name-ground" x={x - 34} y={y - 17} width={68} height={34} rx={6} />
          <text class="spot-name" x={x} y={y - 3} text-anchor="middle">
            {shortNode(replica.node)}
          </text>
          <text class="spot-role" x={x} y={y + 12} text-anchor="middle">
            {roleText(replica)}
          </text>
        </g>
      ))}
      {spots.length > 1 && mirrors.commit !== undefined && (
        <>
          <text class="ring-middle" x={CENTER} y={CENTER - 6} text-anchor="middle">
            {count(mirrors.commit)}
          </text>
          <text class="ring-note" x={CENTER} y={CENTER + 14} text-anchor="middle">
            operations committed
          </text>
        </>
      )}
    </svg>
  );
}

function kindOf(replica: Replica): string {
  if (replica.online === false) return "down";
  return replica.synchronised ? "in-sync" : "behind";
}

function describe(replica: Replica): string {
  const state = replica.online === false ? "down" : replica.synchronised ? "synchronised" : "not synchronised";
  return `${roleText(replica)}, ${state}`;
}

/** One that is being filled is called a learner by the protocol; for who looks it is a mirror that is not there yet. */
function roleText(replica: Replica): string {
  if (replica.role !== "learner") return replica.role;
  return replica.online === false ? "mirror" : "new mirror";
}

export function QueueMirrors({ queue }: { queue: Queue }): JSX.Element {
  const path = `queues/${quote(queue.vhost, queue.name)}`;
  const live = useLive<Mirrors | Replica[]>(`${path}/mirrors`, 1000);
  const mirrors = live.data ? asMirrors(live.data) : null;
  if (!mirrors) {
    return <Panel>{live.error ? <Failure error={live.error} /> : <p class="loading">Loading …</p>}</Panel>;
  }
  const syncing = mirrors.replicas.filter((replica) => replica.sync);
  const behind = mirrors.replicas.filter((replica) => !replica.synchronised && replica.online !== false);
  const explained = mirrors.explain?.length ? mirrors.explain : fallbackExplanation(mirrors);

  function run(action: string, words: { title: string; text: string; verb: string; done: string; command?: string }, more: object = {}): void {
    ask({
      title: words.title,
      body: <p>{words.text}</p>,
      verb: words.verb,
      command: words.command,
      isHarmless: action === "sync",
      run: async () => {
        await act("POST", `${path}/actions`, { action, ...more });
        live.refresh();
      },
      done: words.done,
    });
  }

  const words = `-p ${shellWord(queue.vhost)} ${shellWord(queue.name)}`;
  return (
    <>
      {live.error && <Failure error={live.error} />}
      <div class="two">
        <Panel title="The ring" actions={<Badge tone={stateTone(mirrors.state)}>{mirrors.state ?? "?"}</Badge>}>
          <Ring mirrors={mirrors} />
          <p class="dim small center key">
            {(
              [
                ["master in-sync", "master"],
                ["in-sync", "synchronised"],
                ["behind", "not synchronised"],
                ["down", "down"],
              ] as const
            ).map(([kind, title]) => (
              <span class="key-item" key={title}>
                <svg class="ring-key" width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
                  <g class={`spot ${kind}`}>
                    {title === "master" && <circle class="crown" cx="10" cy="10" r="9" />}
                    <circle class="body" cx="10" cy="10" r="6.5" />
                  </g>
                </svg>{" "}
                {title}
              </span>
            ))}
          </p>
        </Panel>
        <Panel title="What if">
          <ul class="explain">
            {explained.map((line) => (
              <li>{line}</li>
            ))}
          </ul>
          {mirrors.replicas.length < 2 && (
            <p>
              This queue is not mirrored. A policy with <code>ha-mode</code> mirrors it:{" "}
              <a href={href(["policies"], { add: 1, pattern: `^${queue.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`, vhost: queue.vhost })}>add one</a>.
            </p>
          )}
          <div class="sync">
            {syncing.map((replica) => (
              <div key={replica.node}>
                <strong>{shortNode(replica.node)}</strong> is being filled: {syncText(replica.sync!)}
                <Bar label={`Synchronisation of ${replica.node}`} part={replica.sync!.done} whole={replica.sync!.total} />
              </div>
            ))}
            {syncing.length > 0 && <p class="dim small">The queue goes on serving meanwhile: publishers and consumers are not held up.</p>}
          </div>
          <div class="actions">
            {may.makePolicies() && behind.length > 0 && syncing.length === 0 && (
              <button
                type="button"
                class="primary"
                onClick={() =>
                  run("sync", {
                    title: `Synchronise ${queue.name}?`,
                    text: `The messages of the queue are copied to ${behind.map((replica) => shortNode(replica.node)).join(", ")}. It goes on serving meanwhile.`,
                    verb: "Synchronise",
                    done: "The copy begins",
                    command: `warrenctl sync_queue ${words}`,
                  })
                }
              >
                Synchronise …
              </button>
            )}
            {may.makePolicies() && syncing.length > 0 && (
              <button
                type="button"
                onClick={() =>
                  run("cancel_sync", {
                    title: "Cancel the synchronisation?",
                    text: "What was copied so far stays on the mirrors, and they go on getting what is new. They are not in sync, and cannot take over, until the rest is copied or gone.",
                    verb: "Cancel it",
                    done: "The copy stops",
                    command: `warrenctl cancel_sync_queue ${words}`,
                  })
                }
              >
                Cancel synchronisation …
              </button>
            )}
            {may.administrate() && mirrors.replicas.length > 1 && (
              <button type="button" title="The masters of all queues, not of this one only" onClick={askRebalance}>
                Rebalance …
              </button>
            )}
          </div>
          {may.makePolicies() && <Transfer mirrors={mirrors} onRun={(node) => run("transfer_leader", { title: `Make ${node} the master of ${queue.name}?`, text: "Publishers and consumers stay connected; the queue pauses for a moment and nothing is lost.", verb: "Transfer", done: `${shortNode(node)} takes over`, command: `warrenctl transfer_master ${words} ${shellWord(node)}` }, { node })} />}
        </Panel>
      </div>
      <Panel title="Copies">
        <Plain
          label="Copies of the queue"
          rows={mirrors.replicas}
          keyOf={(row) => row.node}
          columns={[
            { title: "Node", show: (row) => <a class="whole" href={href(["nodes", row.node])}>{row.node}</a> },
            { title: "Role", show: (row) => roleText(row) },
            {
              title: "State",
              show: (row) => <Badge tone={row.online === false ? "bad" : row.synchronised ? "good" : "warn"}>{row.online === false ? "down" : row.synchronised ? "synchronised" : "not synchronised"}</Badge>,
            },
            { title: "Applied", numeric: true, wide: true, show: (row) => count(row.applied) },
            { title: "On disk", numeric: true, wide: true, show: (row) => count(row.position) },
            { title: "Operations behind", numeric: true, show: (row) => count(row.lag_messages) },
            { title: "Bytes behind", numeric: true, wide: true, show: (row) => bytes(row.lag_bytes) },
            { title: "Time behind", numeric: true, show: (row) => (row.lag_seconds === null || row.lag_seconds === undefined ? "–" : duration(row.lag_seconds * 1000)) },
            { title: "Since", wide: true, show: (row) => (row.since ? <Time at={row.since} /> : "–") },
          ]}
        />
      </Panel>
    </>
  );
}

function Transfer({ mirrors, onRun }: { mirrors: Mirrors; onRun: (node: string) => void }): JSX.Element | null {
  const heirs = mirrors.replicas.filter((replica) => replica.role !== "master" && replica.synchronised && replica.online !== false);
  const [node, setNode] = useState("");
  if (heirs.length === 0) return null;
  const chosen = heirs.some((replica) => replica.node === node) ? node : heirs[0]!.node;
  return (
    <div class="inline">
      <Choice label="New master" value={chosen} onChange={setNode} options={heirs.map((replica) => [replica.node, shortNode(replica.node)])} />
      <button type="button" onClick={() => onRun(chosen)}>
        Make it the master …
      </button>
    </div>
  );
}

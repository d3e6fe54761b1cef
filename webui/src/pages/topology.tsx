import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { quote } from "../api";
import { count } from "../format";
import { useLive } from "../live";
import { VhostChoice } from "../parts/forms";
import { Empty, Loaded, PageHead, Panel } from "../parts/small";
import type { PageOf } from "../parts/table";
import { href, place, setQuery } from "../router";
import { vhost } from "../state";
import { along, type Edge, layOut, pathOf, type Picture, type Spot } from "../topology";
import type { Binding } from "../types";

const [BOX_W, BOX_H, GAP_X, GAP_Y] = [190, 34, 170, 16];
/** Where along its one step an edge says its keys. */
const LABEL_AT = 0.5;
/** More bindings than this are no picture any more. */
const BINDINGS_MAX = 500;

export function TopologyPage(): JSX.Element {
  const where = place.value.query.get("vhost") ?? (vhost.value || "/");
  const word = place.value.query.get("name") ?? "";
  const [hover, setHover] = useState<string | null>(null);
  // Each queue has a binding to the default exchange, which comes first: pages are asked for from the end.
  const live = useLive<PageOf<Binding>>(`bindings/${quote(where)}?page=1&page_size=${BINDINGS_MAX}&sort=source&sort_reverse=true`, 15000);
  return (
    <>
      <PageHead title="Topology" sub="Which exchanges lead to which queues, as declared. It is a picture of bindings, not of traffic.">
        <VhostChoice value={where} onChange={(next) => setQuery({ vhost: next })} />
        <input type="search" class="filter-input" value={word} placeholder="Only with this in a name  ( / )" aria-label="Only with this in a name" onInput={(event) => setQuery({ name: event.currentTarget.value })} />
      </PageHead>
      <Loaded live={live}>
        {(page) => {
          const own = page.items.filter((binding) => binding.source !== "");
          const shown = own.filter((binding) => binding.source.includes(word) || binding.destination.includes(word));
          const isCut = own.length === page.items.length && page.filtered_count > page.items.length;
          if (shown.length === 0) {
            return (
              <Panel>
                <Empty title={own.length ? "No binding has that in a name." : "Nothing is bound in this virtual host."}>Queues can be reached through the default exchange by their names all the same.</Empty>
              </Panel>
            );
          }
          return (
            <Panel>
              {isCut && <p class="notice warn">Only {count(own.length)} bindings are drawn. A filter shows the rest.</p>}
              <p class="dim small key">
                <span class="key-item">
                  <span class="key-exchange" /> exchange
                </span>
                <span class="key-item">
                  <span class="key-queue" /> queue
                </span>
                <span class="key-item">on an arrow: its routing keys</span>
              </p>
              <Drawing picture={layOut(shown)} where={where} hover={hover} onHover={setHover} />
            </Panel>
          );
        }}
      </Loaded>
    </>
  );
}

function Drawing(props: { picture: Picture; where: string; hover: string | null; onHover: (id: string | null) => void }): JSX.Element {
  const { picture, hover } = props;
  const width = picture.columns * BOX_W + (picture.columns - 1) * GAP_X + 4;
  const height = picture.rows * (BOX_H + GAP_Y) + 4;
  const x = (spot: Spot) => 2 + spot.column * (BOX_W + GAP_X);
  // Short columns stand in the middle of long ones.
  const y = (spot: Spot) => 2 + (spot.row + (picture.rows - picture.heights[spot.column]!) / 2) * (BOX_H + GAP_Y);
  const middle = (spot: Spot) => y(spot) + BOX_H / 2;
  const isLit = (edge: Edge) => hover === null || edge.from === hover || edge.to === hover;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Picture of exchanges and queues">
      <svg class="topology" width={width} height={height}>
        <defs>
          <marker id="leads" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
            <path d="M0 0 L8 4 L0 8 z" class="arrow" />
          </marker>
        </defs>
        {picture.edges.map((edge) => {
          const stops = [picture.boxes.get(edge.from)!, ...edge.via, picture.boxes.get(edge.to)!];
          const steps = stops.slice(1).map((to, i) => ({ x1: x(stops[i]!) + BOX_W, y1: middle(stops[i]!), x2: x(to), y2: middle(to) }));
          const label = edge.labels.filter((each) => each).join(", ");
          // Above where it crosses a column, if it does: there it runs straight.
          const crossed = edge.via.at(-1);
          const at = crossed ? { x: x(crossed) + BOX_W / 2, y: middle(crossed) - 9 } : along(steps.at(-1)!, LABEL_AT);
          return (
            <g key={`${edge.from}\n${edge.to}`} class={isLit(edge) ? "edge" : "edge faint"}>
              <path d={pathOf(steps)} marker-end="url(#leads)" />
              {label && isLit(edge) && (
                <text x={at.x} y={at.y} dominant-baseline="middle" text-anchor="middle">
                  {label.length > 24 ? `${label.slice(0, 23)}…` : label}
                </text>
              )}
              {label && <title>{label}</title>}
            </g>
          );
        })}
        {[...picture.boxes.values()].map((box) => (
          <a
            key={box.id}
            href={href([`${box.kind}s`, props.where, box.name])}
            aria-label={`${box.kind} ${box.name}`}
            onMouseEnter={() => props.onHover(box.id)}
            onMouseLeave={() => props.onHover(null)}
            onFocus={() => props.onHover(box.id)}
            onBlur={() => props.onHover(null)}
          >
            <rect class={`box ${box.kind}`} x={x(box)} y={y(box)} width={BOX_W} height={BOX_H} rx={box.kind === "exchange" ? BOX_H / 2 : 5} />
            <text class="box-name" x={x(box) + BOX_W / 2} y={y(box) + BOX_H / 2 + 4} text-anchor="middle">
              {box.name.length > 22 ? `${box.name.slice(0, 21)}…` : box.name}
            </text>
            <title>{box.name}</title>
          </a>
        ))}
      </svg>
    </div>
  );
}

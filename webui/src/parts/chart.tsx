// Lines over time, drawn as SVG so that the style sheet colours them.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { clock } from "../format";
import { byteCeiling, ceiling, type Line } from "../samples";

const HEIGHT = 180;
const MARGIN = { left: 62, right: 10, top: 10, bottom: 22 };

export function useWidth(): [{ current: HTMLDivElement | null }, number] {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const observer = new ResizeObserver(() => setWidth(Math.max(200, element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [box, width];
}

export interface Scale {
  from: number;
  to: number;
  top: number;
}

export function scaleOf(lines: Line[], isBytes: boolean = false): Scale {
  const points = lines.flatMap((line) => line.points);
  const times = points.map((point) => point.at);
  return {
    from: times.length ? Math.min(...times) : 0,
    to: times.length ? Math.max(...times) : 1,
    top: (isBytes ? byteCeiling : ceiling)(points.reduce((most, point) => Math.max(most, point.value), 0)),
  };
}

export function Chart(props: { title: string; lines: Line[]; show: (value: number) => string; isBytes?: boolean }): JSX.Element {
  const [box, width] = useWidth();
  const [hidden, setHidden] = useState<Set<string>>(new Set());
  const [hover, setHover] = useState<number | null>(null);
  const shown = props.lines.filter((line) => !hidden.has(line.name));
  const scale = scaleOf(shown, props.isBytes);
  const across = width - MARGIN.left - MARGIN.right;
  const down = HEIGHT - MARGIN.top - MARGIN.bottom;
  const x = (at: number) => MARGIN.left + (across * (at - scale.from)) / Math.max(1, scale.to - scale.from);
  const y = (value: number) => MARGIN.top + down * (1 - value / scale.top);
  const moments = [...new Set(shown.flatMap((line) => line.points.map((point) => point.at)))].sort((a, b) => a - b);
  const moment = hover !== null ? moments[Math.min(hover, moments.length - 1)] : undefined;

  function onMove(event: MouseEvent): void {
    const left = (event.currentTarget as SVGElement).getBoundingClientRect().left;
    const at = scale.from + ((event.clientX - left - MARGIN.left) / across) * (scale.to - scale.from);
    let best = 0;
    moments.forEach((each, i) => {
      if (Math.abs(each - at) < Math.abs((moments[best] ?? 0) - at)) best = i;
    });
    setHover(best);
  }

  function toggle(name: string): void {
    const next = new Set(hidden);
    if (!next.delete(name)) next.add(name);
    setHidden(next);
  }

  const summary = props.lines.map((line) => `${line.name} ${props.show(line.now)}`).join(", ");
  return (
    <div class="chart" ref={box}>
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={`${props.title}: ${summary}`}
        onMouseMove={onMove}
        onMouseLeave={() => setHover(null)}
      >
        {[0, 0.25, 0.5, 0.75, 1].map((part) => (
          <g key={part}>
            <line class="grid" x1={MARGIN.left} x2={width - MARGIN.right} y1={y(scale.top * part)} y2={y(scale.top * part)} />
            {(part === 0 || part === 0.5 || part === 1) && (
              <text class="tick" x={MARGIN.left - 6} y={y(scale.top * part) + 4} text-anchor="end">
                {props.show(scale.top * part)}
              </text>
            )}
          </g>
        ))}
        {moments.length > 1 && (
          <>
            <text class="tick" x={MARGIN.left} y={HEIGHT - 5}>
              {clock(scale.from)}
            </text>
            <text class="tick" x={width - MARGIN.right} y={HEIGHT - 5} text-anchor="end">
              {clock(scale.to)}
            </text>
          </>
        )}
        {props.lines.map((line, i) =>
          hidden.has(line.name) ? null : (
            <polyline key={line.name} class={`line l${i}`} points={line.points.map((p) => `${x(p.at)},${y(p.value)}`).join(" ")} />
          ),
        )}
        {moment !== undefined && <line class="cross" x1={x(moment)} x2={x(moment)} y1={MARGIN.top} y2={HEIGHT - MARGIN.bottom} />}
        {moments.length < 2 && (
          <text class="tick" x={width / 2} y={HEIGHT / 2} text-anchor="middle">
            no samples yet
          </text>
        )}
      </svg>
      <div class="legend">
        <span class="legend-time">{moment !== undefined ? clock(moment) : "now"}</span>
        {props.lines.map((line, i) => {
          const at = moment === undefined ? undefined : line.points.find((point) => point.at === moment)?.value;
          return (
            <button
              type="button"
              key={line.name}
              class={`legend-item l${i}`}
              aria-pressed={!hidden.has(line.name)}
              onClick={() => toggle(line.name)}
            >
              <span class="swatch" aria-hidden="true" /> {line.name} <b>{props.show(at ?? line.now)}</b>
            </button>
          );
        })}
      </div>
    </div>
  );
}

// "Copy" beside every table: what it shows as CSV or TSV, what the API said as JSON.

import type { JSX } from "preact";
import { useId, useRef } from "preact/hooks";

import { asText, cellsOf, copyText, type Format, FORMATS } from "../copy";
import { plural } from "../format";
import { attempt } from "./dialog";

/** A button that opens a small menu; the browser closes it with Escape, and gives the focus back. */
export function CopyButton(props: { label: string; rows: unknown[]; isSmall?: boolean }): JSX.Element {
  const id = `copy${useId().replace(/\W/g, "")}`;
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);

  function place(event: { newState: string }): void {
    const from = button.current?.getBoundingClientRect();
    if (event.newState !== "open" || !from || !menu.current) return;
    menu.current.style.top = `${from.bottom + 4}px`;
    menu.current.style.right = `${Math.max(8, document.documentElement.clientWidth - from.right)}px`;
  }

  async function copy(format: Format, name: string): Promise<void> {
    menu.current?.hidePopover();
    const table = button.current?.closest(".tabled")?.querySelector("table");
    if (!table) return;
    await attempt(() => copyText(asText(format, cellsOf(table), props.rows)), `${plural(props.rows.length, "row")} copied as ${name}`);
  }

  return (
    <>
      <button ref={button} type="button" class={props.isSmall ? "quiet copy-small" : "copy"} popovertarget={id} aria-label={`Copy the table ${props.label}`} title="Copy this table">
        {props.isSmall ? <CopySign /> : "Copy"}
      </button>
      <div ref={menu} id={id} popover="auto" class="menu-box" role="group" aria-label={`Copy ${props.label} as`} onBeforeToggle={place}>
        {FORMATS.map(([format, name]) => (
          <button type="button" class="quiet" key={format} onClick={() => void copy(format, name)}>
            Copy as {name}
          </button>
        ))}
      </div>
    </>
  );
}

function CopySign(): JSX.Element {
  return (
    <svg width="15" height="15" viewBox="0 0 16 16" aria-hidden="true">
      <rect x="5.5" y="5.5" width="8" height="8.5" rx="1.5" />
      <path d="M10.5 5.5V3.5a1.5 1.5 0 0 0-1.5-1.5H4a1.5 1.5 0 0 0-1.5 1.5V9A1.5 1.5 0 0 0 4 10.5h1.5" />
    </svg>
  );
}

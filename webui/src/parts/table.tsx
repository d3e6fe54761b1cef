// Lists. The server filters, sorts and cuts them, so that ten thousand rows cost no more than fifty.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { count } from "../format";
import { type Choices, choicesOf, choose, type Choosable, fieldsOf, isShown, shownColumns } from "../columns";
import { type Live, useLive } from "../live";
import { place, setQuery } from "../router";
import { CopyButton } from "./copy";
import { Failure } from "./small";

export interface Column<Row> extends Choosable {
  show: (row: Row) => ComponentChildren;
  /** The field the server sorts by; without one the column is not sorted. */
  sort?: string;
  numeric?: boolean;
  centred?: boolean;
  /** Left out where there is little room, unless somebody has chosen it. */
  wide?: boolean;
  /** Likewise, from less room on: what tables of many columns can do without. */
  roomy?: boolean;
  /** What all rows of the page come to. */
  total?: (rows: Row[]) => ComponentChildren;
}

function classOf(column: Column<never>, choices: Choices = {}): string {
  const isFree = choices[column.title] !== true;
  return [column.numeric && "num", column.centred && "centred", isFree && column.wide && "wide", isFree && column.roomy && "roomy", column.title === "" && "row-end"].filter(Boolean).join(" ");
}

export interface PageOf<Row> {
  items: Row[];
  page: number;
  page_count: number;
  filtered_count: number;
  total_count: number;
}

export const PAGE_SIZES = [25, 50, 100, 500];

/** What the address asks of a list, as the API wants it. */
export function listQuery(query: URLSearchParams, columns: string[], more: string = ""): string {
  const wanted = new URLSearchParams();
  wanted.set("page", query.get("page") ?? "1");
  wanted.set("page_size", query.get("size") ?? "50");
  for (const [ours, theirs] of [
    ["name", "name"],
    ["sort", "sort"],
  ] as const) {
    const value = query.get(ours);
    if (value) wanted.set(theirs, value);
  }
  if (query.get("regex") === "1") wanted.set("use_regex", "true");
  if (query.get("down") === "1") wanted.set("sort_reverse", "true");
  if (columns.length) wanted.set("columns", columns.join(","));
  return wanted.toString() + (more ? `&${more}` : "");
}

interface ListProps<Row> {
  path: string;
  /** Fields to ask for; all, when empty. */
  fields?: string[];
  more?: string;
  noun: string;
  /** What its choice of columns is remembered by, where that is not the noun. */
  name?: string;
  columns: Column<Row>[];
  keyOf: (row: Row) => string;
  /** Rows that sum up what is above. */
  foot?: (rows: Row[]) => ComponentChildren;
  /** What can be done with the rows that are marked. */
  bulk?: (rows: Row[], clear: () => void) => ComponentChildren;
  empty?: ComponentChildren;
  actions?: ComponentChildren;
  noFilter?: boolean;
}

export function List<Row>(props: ListProps<Row>): JSX.Element {
  const query = place.value.query;
  const name = props.name ?? props.noun;
  const choices = choicesOf(name);
  const columns = shownColumns(props.columns, choices);
  const live = useLive<PageOf<Row>>(`${props.path}?${listQuery(query, fieldsOf(props.fields ?? [], columns), props.more)}`);
  // The filter may have left fewer pages than there were.
  useEffect(() => {
    if (live.error?.message.startsWith("Page out of range")) setQuery({ page: null });
  }, [live.error]);
  const data = live.data;
  const isFiltered = Boolean(query.get("name"));
  return (
    <div class="list tabled">
      <div class="list-bar">
        {!props.noFilter && <Filter noun={props.noun} />}
        <span class="list-count" role="status">
          {data && (isFiltered ? `${count(data.filtered_count)} of ${count(data.total_count)}` : count(data.total_count))} {data && nounFor(props.noun, data.total_count)}
        </span>
        <span class="spring" />
        {props.actions}
        <ColumnChoice name={name} columns={props.columns} choices={choices} />
        {data && data.items.length > 0 && <CopyButton label={props.noun} rows={data.items} />}
      </div>
      {live.error && <Failure error={live.error} />}
      {data && data.items.length > 0 && <Rows {...props} columns={columns} choices={choices} live={live} rows={data.items} />}
      {data && data.items.length === 0 && !live.isStale && (
        <div class="empty">{isFiltered ? <strong>Nothing matches the filter.</strong> : (props.empty ?? <strong>None yet.</strong>)}</div>
      )}
      {!data && !live.error && <p class="loading">Loading …</p>}
      {data && <Pager data={data} />}
    </div>
  );
}

function nounFor(noun: string, amount: number): string {
  return amount === 1 ? noun.replace(/ies$/, "y").replace(/s$/, "") : noun;
}

function Filter({ noun }: { noun: string }): JSX.Element {
  const query = place.value.query;
  const [text, setText] = useState(query.get("name") ?? "");
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const isRegex = query.get("regex") === "1";
  function onInput(next: string): void {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ name: next, page: null }), 80);
  }
  return (
    <div class="filter" role="search">
      <input
        type="search"
        class="filter-input"
        value={text}
        placeholder={`Filter ${noun}  ( / )`}
        aria-label={`Filter ${noun} by name`}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <label class="check">
        <input type="checkbox" checked={isRegex} onChange={() => setQuery({ regex: isRegex ? null : "1", page: null })} />
        regex
      </label>
    </div>
  );
}

function ColumnChoice<Row>(props: { name: string; columns: Column<Row>[]; choices: Choices }): JSX.Element {
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    function onAway(event: Event): void {
      const isKey = event instanceof KeyboardEvent;
      const isAway = isKey ? event.key === "Escape" : !box.current?.contains(event.target as Node);
      if (!box.current?.open || !isAway) return;
      box.current.open = false;
      if (isKey) box.current.querySelector("summary")?.focus();
    }
    addEventListener("keydown", onAway);
    addEventListener("pointerdown", onAway);
    return () => {
      removeEventListener("keydown", onAway);
      removeEventListener("pointerdown", onAway);
    };
  }, []);
  const [, ...free] = props.columns;
  return (
    <details class="columns" ref={box}>
      <summary>Columns</summary>
      <div class="columns-box" role="group" aria-label="Columns that are shown">
        {free.filter((column) => column.title).map((column) => {
          const isOn = isShown(column, props.choices);
          return (
            <label class="check" key={column.title}>
              <input type="checkbox" checked={isOn} onChange={() => choose(props.name, { ...props.choices, [column.title]: !isOn })} />
              {column.title}
            </label>
          );
        })}
        <div class="columns-foot">
          <button type="button" class="quiet" disabled={Object.keys(props.choices).length === 0} onClick={() => choose(props.name, null)}>
            As they were
          </button>
        </div>
      </div>
    </details>
  );
}

function Rows<Row>(props: ListProps<Row> & { live: Live<PageOf<Row>>; rows: Row[]; choices: Choices }): JSX.Element {
  const query = place.value.query;
  const [marked, setMarked] = useState<Set<string>>(new Set());
  const { rows, keyOf, bulk } = props;
  const chosen = rows.filter((row) => marked.has(keyOf(row)));
  const clear = () => setMarked(new Set());
  const done = () => {
    clear();
    props.live.refresh();
  };

  function mark(key: string): void {
    const next = new Set(marked);
    if (!next.delete(key)) next.add(key);
    setMarked(next);
  }

  function sortBy(field: string): void {
    const isCurrent = query.get("sort") === field;
    const isDown = query.get("down") === "1";
    // Numbers are looked for at their largest first.
    if (!isCurrent) setQuery({ sort: field, down: "1", page: null });
    else if (isDown) setQuery({ down: null, page: null });
    else setQuery({ sort: null, down: null, page: null });
  }

  return (
    <>
      {bulk && chosen.length > 0 && (
        <div class="bulk" role="region" aria-label="Marked rows">
          <strong>{chosen.length} marked</strong>
          {bulk(chosen, done)}
          <button type="button" class="quiet" onClick={clear}>
            Unmark
          </button>
        </div>
      )}
      <div class={`scroll ${props.live.isStale ? "stale" : ""}`} tabIndex={0} role="region" aria-label={`Table of ${props.noun}`}>
        <table class={props.columns.some((column) => column.title === "") ? "cards" : undefined}>
          <thead>
            <tr>
              {bulk && (
                <th class="mark">
                  <input
                    type="checkbox"
                    aria-label="Mark all on this page"
                    checked={chosen.length === rows.length}
                    onChange={() => setMarked(chosen.length === rows.length ? new Set() : new Set(rows.map(keyOf)))}
                  />
                </th>
              )}
              {props.columns.map((column) => {
                const isSorted = column.sort !== undefined && query.get("sort") === column.sort;
                const isDown = query.get("down") === "1";
                return (
                  <th
                    key={column.title}
                    scope="col"
                    class={classOf(column as Column<never>, props.choices)}
                    aria-sort={isSorted ? (isDown ? "descending" : "ascending") : undefined}
                  >
                    {column.sort ? (
                      <button type="button" class="sort" onClick={() => sortBy(column.sort!)}>
                        {column.title}
                        <span aria-hidden="true">{isSorted ? (isDown ? " ▾" : " ▴") : ""}</span>
                      </button>
                    ) : (
                      column.title
                    )}
                  </th>
                );
              })}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => {
              const key = keyOf(row);
              return (
                <tr key={key} class={marked.has(key) ? "marked" : ""}>
                  {bulk && (
                    <td class="mark">
                      <input type="checkbox" aria-label={`Mark ${key}`} checked={marked.has(key)} onChange={() => mark(key)} />
                    </td>
                  )}
                  {props.columns.map((column) => (
                    <td key={column.title} data-label={column.title} class={classOf(column as Column<never>, props.choices)}>
                      {column.show(row)}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
          {props.foot && <tfoot>{props.foot(rows)}</tfoot>}
          {!props.foot && rows.length > 1 && props.columns.some((column) => column.total) && (
            <tfoot>
              <tr>
                {bulk && <td class="mark" />}
                {props.columns.map((column, i) => (
                  <td key={column.title} class={classOf(column as Column<never>, props.choices)}>
                    {i === 0 ? (props.live.data!.page_count > 1 ? "On this page" : "In all") : column.total?.(rows)}
                  </td>
                ))}
              </tr>
            </tfoot>
          )}
        </table>
      </div>
    </>
  );
}

function Pager({ data }: { data: PageOf<unknown> }): JSX.Element | null {
  const size = place.value.query.get("size") ?? "50";
  if (data.page_count <= 1 && data.total_count <= PAGE_SIZES[0]!) return null;
  return (
    <nav class="pager" aria-label="Pages">
      <button type="button" disabled={data.page <= 1} onClick={() => setQuery({ page: data.page - 1 })}>
        ← Previous
      </button>
      <span>
        page {count(data.page)} of {count(data.page_count)}
      </span>
      <button type="button" disabled={data.page >= data.page_count} onClick={() => setQuery({ page: data.page + 1 })}>
        Next →
      </button>
      <label class="check">
        rows
        <select value={size} onChange={(event) => setQuery({ size: event.currentTarget.value, page: null })}>
          {PAGE_SIZES.map((each) => (
            <option value={each}>{each}</option>
          ))}
        </select>
      </label>
    </nav>
  );
}

/** A table that is short enough to come whole. */
export function Plain<Row>(props: {
  label: string;
  rows: Row[];
  columns: Column<Row>[];
  keyOf: (row: Row) => string;
  empty?: ComponentChildren;
}): JSX.Element {
  if (props.rows.length === 0) return <div class="empty">{props.empty ?? <strong>None.</strong>}</div>;
  const hasEnd = props.columns.at(-1)?.title === "";
  const copy = <CopyButton label={props.label} rows={props.rows} isSmall />;
  return (
    <div class="scroll tabled" tabIndex={0} role="region" aria-label={props.label}>
      <table class="cards">
        <thead>
          <tr>
            {props.columns.map((column) => (
              <th scope="col" key={column.title} class={classOf(column as Column<never>)}>
                {column.title || copy}
              </th>
            ))}
            {!hasEnd && <th class="copy-cell">{copy}</th>}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((row) => (
            <tr key={props.keyOf(row)}>
              {props.columns.map((column) => (
                <td key={column.title} data-label={column.title} class={classOf(column as Column<never>)}>
                  {column.show(row)}
                </td>
              ))}
              {!hasEnd && <td class="copy-cell" />}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

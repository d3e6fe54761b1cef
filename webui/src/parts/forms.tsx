// Forms: fields with labels, and tables of arguments.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { useLive } from "../live";

export function Field(props: {
  label: ComponentChildren;
  hint?: ComponentChildren;
  error?: string | null;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <label class="field">
      <span>{props.label}</span>
      {props.children}
      {props.hint && <small>{props.hint}</small>}
      {props.error && (
        <small class="wrong" role="alert">
          {props.error}
        </small>
      )}
    </label>
  );
}

export function Text(props: {
  value: string;
  onChange: (value: string) => void;
  type?: string;
  placeholder?: string;
  list?: string;
  required?: boolean;
  autocomplete?: string;
  name?: string;
}): JSX.Element {
  const { onChange, ...rest } = props;
  // Preact's types know which kinds of input may have a list; here that is for the caller to know.
  const attributes = { spellcheck: false, autocomplete: "off", ...rest } as object;
  return <input {...attributes} onInput={(event) => onChange(event.currentTarget.value)} />;
}

export function Choice(props: { value: string; options: [string, string][]; onChange: (value: string) => void; label?: string }): JSX.Element {
  return (
    <select value={props.value} aria-label={props.label} onChange={(event) => props.onChange(event.currentTarget.value)}>
      {props.options.map(([value, title]) => (
        <option value={value}>{title}</option>
      ))}
    </select>
  );
}

export interface Pair {
  key: string;
  value: string;
}

/** What somebody typed as the value of an argument: JSON where it is such, else a text. */
export function typedValue(text: string): unknown {
  const trimmed = text.trim();
  if (/^(true|false|null|-?\d+(\.\d+)?([eE][+-]?\d+)?)$/.test(trimmed) || /^[[{"]/.test(trimmed)) {
    try {
      return JSON.parse(trimmed);
    } catch {
      return text;
    }
  }
  return text;
}

export function tableOf(pairs: Pair[]): Record<string, unknown> {
  return Object.fromEntries(pairs.filter((pair) => pair.key.trim()).map((pair) => [pair.key.trim(), typedValue(pair.value)]));
}

export function pairsOf(table: Record<string, unknown>): Pair[] {
  return Object.entries(table).map(([key, value]) => ({
    key,
    // A text that reads like something else keeps its quotes.
    value: typeof value === "string" && typedValue(value) === value ? value : JSON.stringify(value),
  }));
}

export function Pairs(props: { label: string; pairs: Pair[]; onChange: (pairs: Pair[]) => void; known?: string[]; listId?: string }): JSX.Element {
  const id = props.listId ?? `known-${props.label.replace(/\W/g, "")}`;
  const set = (i: number, change: Partial<Pair>) => props.onChange(props.pairs.map((pair, j) => (i === j ? { ...pair, ...change } : pair)));
  return (
    <fieldset class="pairs">
      <legend>{props.label}</legend>
      {props.known && (
        <datalist id={id}>
          {props.known.map((name) => (
            <option value={name} />
          ))}
        </datalist>
      )}
      {props.pairs.map((pair, i) => (
        <div class="pair">
          <Text value={pair.key} list={props.known ? id : undefined} placeholder="key" onChange={(key) => set(i, { key })} />
          <Text value={pair.value} placeholder="value" onChange={(value) => set(i, { value })} />
          <button type="button" class="quiet" aria-label={`Remove ${pair.key || "this row"}`} onClick={() => props.onChange(props.pairs.filter((_, j) => j !== i))}>
            ✕
          </button>
        </div>
      ))}
      <button type="button" class="quiet" onClick={() => props.onChange([...props.pairs, { key: "", value: "" }])}>
        + add
      </button>
    </fieldset>
  );
}

const drawerId = (title: string) => `drawer-${title.replace(/\W+/g, "-").toLowerCase()}`;

/** Brings a form that was opened before the eyes, and to the keyboard. */
function enter(drawer: HTMLElement): void {
  drawer.scrollIntoView({ block: "nearest" });
  const first = drawer.querySelector<HTMLElement>('input:not([type="checkbox"])') ?? drawer.querySelector<HTMLElement>("select, textarea");
  first?.focus();
}

/** A form that is out of the way until somebody wants it. */
export function Drawer(props: { title: string; open?: boolean; children: ComponentChildren }): JSX.Element {
  const [isOpen, setOpen] = useState(props.open ?? false);
  const box = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (props.open && box.current) enter(box.current);
  }, []);
  return (
    <details class="drawer" id={drawerId(props.title)} ref={box} open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{props.title}</summary>
      {isOpen && <div class="drawer-body">{props.children}</div>}
    </details>
  );
}

/** At the head of a page: opens the form of that title, which stands below the list. */
export function DrawerButton({ title }: { title: string }): JSX.Element {
  function show(): void {
    const drawer = document.getElementById(drawerId(title));
    if (!(drawer instanceof HTMLDetailsElement)) return;
    drawer.open = true;
    // What is in it is drawn when it has opened.
    setTimeout(() => enter(drawer), 50);
  }
  return (
    <button type="button" onClick={show}>
      {title}
    </button>
  );
}

export function useVhosts(): string[] {
  const live = useLive<{ name: string }[]>("vhosts?columns=name", 15000);
  return (live.data ?? []).map((vhost) => vhost.name);
}

export function VhostChoice(props: { value: string; onChange: (vhost: string) => void; all?: boolean; label?: string }): JSX.Element {
  const vhosts = useVhosts();
  const options: [string, string][] = vhosts.map((name) => [name, name]);
  if (props.value && !vhosts.includes(props.value)) options.unshift([props.value, props.value]);
  return <Choice label={props.label ?? "Virtual host"} value={props.value} onChange={props.onChange} options={props.all ? [["", "all virtual hosts"], ...options] : options} />;
}

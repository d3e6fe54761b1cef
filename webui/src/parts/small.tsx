// Small pieces that all pages are made of.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import type { ApiFailure } from "../api";
import { copyText } from "../copy";
import { ago, clock, percent, rate } from "../format";
import { failureWords } from "../failures";
import type { Live } from "../live";
import { vhost } from "../state";

export function Panel(props: {
  title?: ComponentChildren;
  actions?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <section class={`panel ${props.class ?? ""}`}>
      {(props.title || props.actions) && (
        <header class="panel-head">
          <h2>{props.title}</h2>
          <div class="actions">{props.actions}</div>
        </header>
      )}
      {props.children}
    </section>
  );
}

export function PageHead(props: {
  title: ComponentChildren;
  trail?: [string, string][];
  sub?: ComponentChildren;
  children?: ComponentChildren;
}): JSX.Element {
  return (
    <div class="page-head">
      <div>
        {props.trail && (
          <nav aria-label="Where you are" class="trail">
            {props.trail.map(([name, link]) => (
              <a href={link}>{name}</a>
            ))}
          </nav>
        )}
        <h1>
          <bdi>{props.title}</bdi>
        </h1>
        {props.sub && <p class="sub">{props.sub}</p>}
      </div>
      <div class="actions">{props.children}</div>
    </div>
  );
}

export type Tone = "good" | "warn" | "bad" | "plain" | "accent";

/** A word with a tone; the sign before it says the same to who does not see colours. */
export function Badge(props: { tone?: Tone; title?: string; children: ComponentChildren }): JSX.Element {
  const tone = props.tone ?? "plain";
  const sign = { good: "✓ ", warn: "! ", bad: "✕ ", plain: "", accent: "" }[tone];
  return (
    <span class={`badge ${tone}`} title={props.title}>
      {sign && <span aria-hidden="true">{sign}</span>}
      {props.children}
    </span>
  );
}

export function stateTone(state: string | undefined): Tone {
  if (state === "running" || state === "flow" || state === "idle") return "good";
  if (state === "down" || state === "no master" || state === "crashed") return "bad";
  return state ? "warn" : "plain";
}

export function Failure({ error }: { error: ApiFailure }): JSX.Element {
  const { title, text } = failureWords(error.status, error.message);
  return (
    <div class="notice bad" role="alert">
      <strong>{title}</strong>
      {text && <span>{text}</span>}
    </div>
  );
}

/** What a page shows of live data: the data, what went wrong, or that it is on its way; `head` until there is data. */
export function Loaded<T>(props: { live: Live<T>; children: (data: T) => ComponentChildren; head?: ComponentChildren }): JSX.Element {
  const { data, error } = props.live;
  return (
    <>
      {data === null && props.head}
      {error && <Failure error={error} />}
      {data !== null ? props.children(data) : !error && <p class="loading">Loading …</p>}
    </>
  );
}

export function Empty(props: { title: string; command?: string; children?: ComponentChildren }): JSX.Element {
  return (
    <div class="empty">
      <strong>{props.title}</strong>
      {props.children && <p>{props.children}</p>}
      {props.command && <Command text={props.command} />}
    </div>
  );
}

export function Command({ text }: { text: string }): JSX.Element {
  const [copied, setCopied] = useState(false);
  async function copy(): Promise<void> {
    try {
      await copyText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch {
      // Without a clipboard the text can still be marked.
    }
  }
  return (
    <span class="command">
      <code>{text}</code>
      <button type="button" class="quiet" onClick={() => void copy()} aria-label={copied ? "Copied" : "Copy the command"}>
        {copied ? "copied" : "copy"}
      </button>
    </span>
  );
}

/** What a form does, as a command. */
export function Same({ text }: { text: string }): JSX.Element {
  return (
    <p class="same full">
      The same from a terminal: <Command text={text} />
    </p>
  );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {rows.map(([name, value]) => (
        <div>
          <dt>{name}</dt>
          <dd>{value === undefined || value === null || value === "" ? "–" : value}</dd>
        </div>
      ))}
    </dl>
  );
}

export function Tile(props: { name: string; value: ComponentChildren; note?: ComponentChildren; link?: string }): JSX.Element {
  const inner = (
    <>
      <span class="tile-name">{props.name}</span>
      <span class="tile-value">{props.value}</span>
      {props.note && <span class="tile-note">{props.note}</span>}
    </>
  );
  return props.link ? (
    <a class="tile" href={props.link}>
      {inner}
    </a>
  ) : (
    <div class="tile">{inner}</div>
  );
}

export function Bar(props: { part: number; whole: number; label: string; tone?: Tone }): JSX.Element {
  const filled = percent(props.part, props.whole);
  return (
    <div
      class={`bar ${props.tone ?? "accent"}`}
      role="progressbar"
      aria-label={props.label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(filled)}
    >
      <div style={{ width: `${filled}%` }} />
    </div>
  );
}

export function Time({ at }: { at: number }): JSX.Element {
  const [, setTurn] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setTurn((turn) => turn + 1), 5000);
    return () => clearInterval(timer);
  }, []);
  return (
    <time dateTime={new Date(at).toISOString()} title={new Date(at).toString()}>
      <span>{clock(at)}</span> <span class="dim">{ago(at)}</span>
    </time>
  );
}

/** Longer ones are shown in three lines of a table, and whole under the mouse. */
const LONG_NAME = 80;

/** A name that is broken where it has its parts, if it has to be. */
export function Name({ text }: { text: string }): JSX.Element {
  return <bdi class={text.length > LONG_NAME ? "clamp" : undefined} title={text.length > LONG_NAME ? text : undefined}>{text.split(/(?<=[./:_-])/).map((part, i) => (i === 0 ? part : [<wbr />, part]))}</bdi>;
}

/** Below a name in a list: its virtual host, where that is not the one to expect. */
export function InVhost({ name }: { name: string }): JSX.Element | null {
  return !vhost.value && name !== "/" ? <div class="dim small">in {name}</div> : null;
}

/** A table of arguments, or that there are none. */
export function Arguments({ value }: { value: Record<string, unknown> | undefined }): JSX.Element {
  return Object.keys(value ?? {}).length ? <Json value={value} /> : <>none</>;
}

/** Nothing a second is not what one looks for in a list. */
export function Rate({ value }: { value: number }): JSX.Element {
  return <span class={value ? "" : "dim"}>{rate(value)}</span>;
}

export function Json({ value }: { value: unknown }): JSX.Element {
  return <code class="json">{JSON.stringify(value)}</code>;
}

export function Tabs(props: { label: string; tabs: [string, string, string, string?][]; current: string }): JSX.Element {
  return (
    <nav class="tabs" aria-label={props.label}>
      {props.tabs.map(([key, title, link, note]) => (
        <a key={key} href={link} aria-current={key === props.current ? "page" : undefined}>
          {title}
          {note && <span class="tab-note">{note}</span>}
        </a>
      ))}
    </nav>
  );
}

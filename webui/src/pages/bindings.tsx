import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, curlOf, quote } from "../api";
import { useLive } from "../live";
import { ask, attempt } from "../parts/dialog";
import { Choice, Drawer, Field, type Pair, Pairs, tableOf, Text } from "../parts/forms";
import { Json, Loaded, Name, Panel, Same } from "../parts/small";
import { type Column, Plain } from "../parts/table";
import { href } from "../router";
import type { Binding, Exchange, Queue } from "../types";

/** How the API names the default exchange in paths. */
export const pathName = (exchange: string) => exchange || "amq.default";

function askUnbind(binding: Binding, done: () => void): void {
  const kind = binding.destination_type === "queue" ? "q" : "e";
  const path = `bindings/${quote(binding.vhost, "e", pathName(binding.source), kind, binding.destination, binding.properties_key)}`;
  ask({
    title: "Remove this binding?",
    body: (
      <p>
        Messages that <code>{binding.source}</code> gets with key <code>{binding.routing_key || "(none)"}</code> will no longer reach {binding.destination_type}{" "}
        <code>{binding.destination}</code> by it. No message is lost that is there already.
      </p>
    ),
    verb: "Unbind",
    command: curlOf("DELETE", path),
    run: async () => {
      await act("DELETE", path);
      done();
    },
    done: "The binding is gone",
  });
}

/** `known`: the column that would say the same in every row. */
export function bindingColumns(done: () => void, known: "From" | "To"): Column<Binding>[] {
  return bindingParts(done).filter((column) => column.title !== known);
}

function bindingParts(done: () => void): Column<Binding>[] {
  return [
    {
      title: "From",
      show: (row) => (row.source ? <a href={href(["exchanges", row.vhost, row.source])}><Name text={row.source} /></a> : <span class="dim">(default exchange)</span>),
    },
    {
      title: "To",
      show: (row) => (
        <>
          <a href={href([row.destination_type === "queue" ? "queues" : "exchanges", row.vhost, row.destination])}><Name text={row.destination} /></a>{" "}
          {row.destination_type === "exchange" && <span class="dim">exchange</span>}
        </>
      ),
    },
    { title: "Routing key", show: (row) => row.routing_key && <code><Name text={row.routing_key} /></code> },
    { title: "Arguments", wide: true, show: (row) => Object.keys(row.arguments).length > 0 && <Json value={row.arguments} /> },
    {
      title: "",
      show: (row) =>
        row.source !== "" && (
          <button type="button" class="quiet" onClick={() => askUnbind(row, done)}>
            Unbind …
          </button>
        ),
    },
  ];
}

export function QueueBindings({ queue }: { queue: Queue }): JSX.Element {
  const live = useLive<Binding[]>(`queues/${quote(queue.vhost, queue.name)}/bindings`);
  const exchanges = useLive<Exchange[]>(`exchanges/${quote(queue.vhost)}?columns=name`, 60000);
  return (
    <>
      <Panel>
        <Loaded live={live}>{(rows) => <Plain label="Bindings" rows={rows} keyOf={(row) => `${row.source} ${row.properties_key}`} columns={bindingColumns(live.refresh, "To")} />}</Loaded>
      </Panel>
      <Drawer title="Bind it to an exchange">
        <AddBinding
          fixed={{ kind: "q", name: queue.name, vhost: queue.vhost }}
          others={(exchanges.data ?? []).map((each) => each.name).filter((name) => name)}
          onDone={live.refresh}
        />
      </Drawer>
    </>
  );
}

/** A form for a binding that leads to a thing that is fixed, or from an exchange that is. */
export function AddBinding(props: {
  fixed: { kind: "q" | "e"; name: string; vhost: string; isSource?: boolean };
  others: string[];
  onDone: () => void;
}): JSX.Element {
  const { fixed } = props;
  const [other, setOther] = useState("");
  const [kind, setKind] = useState("q");
  const [key, setKey] = useState("");
  const [pairs, setPairs] = useState<Pair[]>([]);
  const [source, to, toKind] = fixed.isSource ? [fixed.name, other, kind] : [other, fixed.name, fixed.kind];
  const path = `bindings/${quote(fixed.vhost, "e", source || "EXCHANGE", toKind, to || "NAME")}`;
  const body = { routing_key: key, arguments: tableOf(pairs) };
  async function bind(event: Event): Promise<void> {
    event.preventDefault();
    if (await attempt(() => act("POST", path, body), `${source} now leads to ${to}`)) props.onDone();
  }
  return (
    <form class="form" onSubmit={(event) => void bind(event)}>
      {fixed.isSource && (
        <Field label="To">
          <Choice
            value={kind}
            onChange={setKind}
            options={[
              ["q", "queue"],
              ["e", "exchange"],
            ]}
          />
        </Field>
      )}
      <Field label={fixed.isSource ? "Its name" : "Exchange"}>
        <Text value={other} onChange={setOther} list="bindable" required />
      </Field>
      <datalist id="bindable">
        {props.others.map((name) => (
          <option value={name} />
        ))}
      </datalist>
      <Field label="Routing key">
        <Text value={key} onChange={setKey} />
      </Field>
      <Pairs label="Arguments" pairs={pairs} onChange={setPairs} known={["x-match"]} />
      <button type="submit" class="primary">
        Bind
      </button>
      <Same text={curlOf("POST", path, body)} />
    </form>
  );
}

// The form that adds something with a name and arguments to a virtual host.

import type { ComponentChildren, JSX } from "preact";
import { useState } from "preact/hooks";

import { act, curlOf, quote } from "../api";
import { vhost } from "../state";
import { attempt } from "./dialog";
import { Choice, Field, type Pair, Pairs, tableOf, Text, VhostChoice } from "./forms";
import { Same } from "./small";

/** `settings` is what the request says beside the arguments, `known` are arguments to choose from. */
export function AddForm(props: { noun: "Exchange" | "Queue"; settings: Record<string, unknown>; known: string[]; children: ComponentChildren }): JSX.Element {
  const [where, setWhere] = useState(vhost.value || "/");
  const [name, setName] = useState("");
  const [pairs, setPairs] = useState<Pair[]>([]);
  const noun = props.noun.toLowerCase();
  const path = `${noun}s/${quote(where, name || "NAME")}`;
  const body = { ...props.settings, arguments: tableOf(pairs) };
  async function add(event: Event): Promise<void> {
    event.preventDefault();
    if (await attempt(() => act("PUT", path, body), `${props.noun} ${name} is there`)) setName("");
  }
  return (
    <form class="form" onSubmit={(event) => void add(event)}>
      <Field label="Virtual host">
        <VhostChoice value={where} onChange={setWhere} />
      </Field>
      <Field label="Name">
        <Text value={name} onChange={setName} required />
      </Field>
      {props.children}
      <Pairs label="Arguments" pairs={pairs} onChange={setPairs} known={props.known} />
      <button type="submit" class="primary">
        Add {noun}
      </button>
      <Same text={curlOf("PUT", path, body)} />
    </form>
  );
}

export function YesOrNo(props: { label: string; hint?: string; value: boolean; onChange: (value: boolean) => void }): JSX.Element {
  return (
    <Field label={props.label} hint={props.hint}>
      <Choice
        value={props.value ? "yes" : "no"}
        onChange={(value) => props.onChange(value === "yes")}
        options={[
          ["yes", "yes"],
          ["no", "no"],
        ]}
      />
    </Field>
  );
}

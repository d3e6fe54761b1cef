import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

import { act, may, quote } from "../api";
import { count, plural, shellWord } from "../format";
import { ask, attempt } from "../parts/dialog";
import { Choice, Drawer, DrawerButton, Field, type Pair, Pairs, pairsOf, tableOf, Text, VhostChoice } from "../parts/forms";
import { Empty, Json, PageHead, Panel, Same } from "../parts/small";
import { List } from "../parts/table";
import { href, place } from "../router";
import { vhost, within } from "../state";
import type { Policy } from "../types";

const KEYS = [
  "ha-mode",
  "ha-params",
  "ha-sync-mode",
  "ha-promote-on-failure",
  "ha-promote-on-shutdown",
  "ha-sync-batch-size",
  "ha-sync-strategy",
  "ha-min-in-sync",
  "ha-max-lag",
  "ha-deliver",
  "ha-replication",
  "ha-max-lag-messages",
  "ha-max-lag-ms",
  "ha-replication-window",
  "ha-replicate",
  "message-ttl",
  "expires",
  "max-length",
  "max-length-bytes",
  "overflow",
  "dead-letter-exchange",
  "dead-letter-routing-key",
  "queue-mode",
  "alternate-exchange",
];

/** Definitions that people mean most often. */
const PRESETS: [string, string, Record<string, unknown>][] = [
  ["Mirror everywhere", "a copy on every node", { "ha-mode": "all", "ha-sync-mode": "automatic" }],
  ["Two copies", "a master and one mirror", { "ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic" }],
  ["Expire messages", "after one hour", { "message-ttl": 3600000 }],
  ["Limit length", "refuse what is beyond", { "max-length": 10000, overflow: "reject-publish" }],
  ["Dead letters", "to an exchange", { "dead-letter-exchange": "dlx" }],
];

interface Preview {
  valid: boolean;
  error: string | null;
  matched: number;
  governed: number;
  queues: number;
  exchanges: number;
  examples: { kind: string; name: string; now: string | null; after: string | null }[];
}

export function PoliciesPage({ operator }: { operator: boolean }): JSX.Element {
  const table = operator ? "operator-policies" : "policies";
  const [edited, setEdited] = useState<Policy | null>(null);
  const [turn, setTurn] = useState(0);
  const mayChange = operator ? may.administrate() : may.makePolicies();
  const query = place.value.query;
  const isAsked = query.get("add") === "1";

  function remove(row: Policy): void {
    ask({
      title: `Remove policy ${row.name}?`,
      body: (
        <p>
          What it sets no longer holds for whatever matches <code>{row.pattern}</code> in <code>{row.vhost}</code>; the policy with the next priority takes its place. Where it mirrors queues,
          <strong> their copies on other nodes are dropped</strong>. No message of a master is lost.
        </p>
      ),
      verb: "Remove",
      typed: row.name,
      command: `warrenctl clear_${operator ? "operator_" : ""}policy -p ${shellWord(row.vhost)} ${shellWord(row.name)}`,
      run: async () => {
        await act("DELETE", `${table}/${quote(row.vhost, row.name)}`);
        setTurn(turn + 1);
      },
      done: `Policy ${row.name} is gone`,
    });
  }

  return (
    <>
      <PageHead
        title={operator ? "Operator policies" : "Policies"}
        sub={operator ? "Limits that hold whatever users' policies and arguments say." : "What holds for all queues and exchanges whose name matches. Of several, the highest priority wins."}
      >
        {mayChange && <DrawerButton title="Add / update a policy" />}
      </PageHead>
      <Panel>
        <List<Policy>
          key={turn}
          path={within(table)}
          noun="policies"
          keyOf={(row) => `${row.vhost} ${row.name}`}
          empty={<Empty title="There is no policy yet." command={`warrenctl set_policy ha '^ha\\.' '{"ha-mode":"all"}' --apply-to queues`} />}
          columns={[
            { title: "Name", sort: "name", show: (row) => row.name },
            { title: "Vhost", sort: "vhost", wide: true, show: (row) => <code>{row.vhost}</code> },
            { title: "Pattern", show: (row) => <code>{row.pattern}</code> },
            { title: "Applies to", wide: true, show: (row) => row["apply-to"] },
            { title: "Definition", show: (row) => <Json value={row.definition} /> },
            { title: "Priority", sort: "priority", numeric: true, show: (row) => row.priority },
            {
              title: "",
              show: (row) =>
                mayChange && (
                  <span class="row-actions">
                    <button type="button" class="quiet" onClick={() => setEdited(row)}>
                      Edit
                    </button>
                    <button type="button" class="quiet" onClick={() => remove(row)}>
                      Remove …
                    </button>
                  </span>
                ),
            },
          ]}
        />
      </Panel>
      {mayChange && (
        <Drawer key={edited ? `${edited.vhost} ${edited.name}` : "new"} title="Add / update a policy" open={edited !== null || isAsked}>
          <PolicyForm operator={operator} start={edited ?? given(query)} onDone={() => setTurn(turn + 1)} />
        </Drawer>
      )}
    </>
  );
}

/** What a link from another page has filled in. */
function given(query: URLSearchParams): Policy {
  let definition: Record<string, unknown> = {};
  try {
    definition = JSON.parse(query.get("definition") ?? "{}") as Record<string, unknown>;
  } catch {
    // A link that somebody wrote by hand.
  }
  return { vhost: query.get("vhost") ?? (vhost.value || "/"), name: "", pattern: query.get("pattern") ?? "", "apply-to": "queues", definition, priority: 0 };
}

function PolicyForm(props: { operator: boolean; start: Policy; onDone: () => void }): JSX.Element {
  const { operator, start } = props;
  const [where, setWhere] = useState(start.vhost);
  const [name, setName] = useState(start.name);
  const [pattern, setPattern] = useState(start.pattern);
  const [applyTo, setApplyTo] = useState(start["apply-to"]);
  const [priority, setPriority] = useState(String(start.priority));
  const [pairs, setPairs] = useState<Pair[]>(pairsOf(start.definition).length ? pairsOf(start.definition) : [{ key: "", value: "" }]);
  const definition = tableOf(pairs);
  const body = { pattern, "apply-to": applyTo, priority: Number(priority) || 0, definition };
  const preview = usePreview(where, { ...body, name, operator });

  async function save(event: Event): Promise<void> {
    event.preventDefault();
    const path = `${operator ? "operator-policies" : "policies"}/${quote(where, name)}`;
    if (await attempt(() => act("PUT", path, body), `Policy ${name} holds`)) props.onDone();
  }

  const command = `warrenctl set_${operator ? "operator_" : ""}policy -p ${shellWord(where)} ${shellWord(name || "NAME")} ${shellWord(pattern || ".*")} ${shellWord(JSON.stringify(definition))} --priority ${Number(priority) || 0} --apply-to ${applyTo}`;
  return (
    <div class="two policy">
      <form class="form" onSubmit={(event) => void save(event)}>
        <Field label="Virtual host">
          <VhostChoice value={where} onChange={setWhere} />
        </Field>
        <Field label="Name">
          <Text name="policy-name" value={name} onChange={setName} required />
        </Field>
        <Field label="Pattern" hint="A regular expression that is looked for in names: ^ha\. for all that begin with ha.">
          <Text name="policy-pattern" value={pattern} onChange={setPattern} required />
        </Field>
        <Field label="Applies to">
          <Choice value={applyTo} onChange={setApplyTo} options={(operator ? ["queues"] : ["queues", "exchanges", "all"]).map((each) => [each, each])} />
        </Field>
        <Field label="Priority">
          <Text type="number" value={priority} onChange={setPriority} />
        </Field>
        <div class="field full">
          <span>Often meant</span>
          <div class="presets">
            {PRESETS.filter(([, , each]) => !operator || !("dead-letter-exchange" in each)).map(([title, hint, each]) => (
              <button type="button" title={hint} onClick={() => setPairs(pairsOf(each))}>
                {title}
              </button>
            ))}
          </div>
        </div>
        <Pairs label="Definition" pairs={pairs} onChange={setPairs} known={KEYS} />
        <button type="submit" class="primary" disabled={preview !== null && !preview.valid}>
          Save policy
        </button>
        <Same text={command} />
      </form>
      <PreviewPanel preview={preview} where={where} name={name || "new policy"} applyTo={applyTo} />
    </div>
  );
}

function usePreview(where: string, body: Record<string, unknown>): Preview | null {
  const [preview, setPreview] = useState<Preview | null>(null);
  const text = JSON.stringify(body);
  useEffect(() => {
    let isOver = false;
    const timer = setTimeout(() => {
      act<Preview>("POST", `warren/policies/${quote(where)}/preview`, JSON.parse(text))
        .then((found) => !isOver && setPreview(found))
        .catch(() => !isOver && setPreview(null));
    }, 250);
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [where, text]);
  return preview;
}

function PreviewPanel({ preview, where, name, applyTo }: { preview: Preview | null; where: string; name: string; applyTo: string }): JSX.Element {
  return (
    <section class="preview" aria-live="polite">
      <h3>What it would do</h3>
      {!preview && <p class="dim">Type a pattern to see what it covers.</p>}
      {preview?.error && <div class="notice warn">{preview.error}</div>}
      {preview && (
        <p>
          Matches <strong>{plural(preview.matched, "name")}</strong> of {[applyTo !== "exchanges" && plural(preview.queues, "queue"), applyTo !== "queues" && plural(preview.exchanges, "exchange")].filter(Boolean).join(" and ")}
          {preview.matched > 0 && preview.governed < preview.matched && <>; {count(preview.matched - preview.governed)} of them keep a policy of higher priority</>}.
        </p>
      )}
      {preview && preview.examples.length > 0 && (
        <ul class="names tall" tabIndex={0} aria-label="What matches">
          {preview.examples.map((row) => (
            <li>
              <a href={href([`${row.kind}s`, where, row.name])}>{row.name}</a>{" "}
              <span class="dim">
                {row.kind === "exchange" && "exchange, "}
                {row.after === name ? (row.now && row.now !== name ? `now ${row.now}` : "") : `stays with ${row.after}`}
              </span>
            </li>
          ))}
          {preview.matched > preview.examples.length && <li class="dim">and {count(preview.matched - preview.examples.length)} more</li>}
        </ul>
      )}
    </section>
  );
}

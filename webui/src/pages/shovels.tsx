import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, may, quote } from "../api";
import { count, plural, rate, shellWord, shortNode } from "../format";
import { ask, attempt } from "../parts/dialog";
import { Choice, Drawer, DrawerButton, Field, Text, VhostChoice } from "../parts/forms";
import { Badge, Empty, InVhost, Name, PageHead, Panel, Same, Time } from "../parts/small";
import { List } from "../parts/table";
import { definitionOf, endOf, NEW_SHOVEL, type Shovel, type ShovelForm, toneOf } from "../shovels";
import { vhost, within } from "../state";

const EXAMPLE = `warrenctl set_parameter shovel my-shovel '{"src-uri": "amqp://", "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}'`;

const path = (row: Shovel, more = "") => `shovels/vhost/${quote(row.vhost, row.name)}${more}`;
const command = (verb: string, row: Shovel) => `warrenctl ${verb} -p ${shellWord(row.vhost)} ${shellWord(row.name)}`;

function askPause(row: Shovel, done: () => void): void {
  const isPaused = row.state === "paused";
  ask({
    title: isPaused ? `Resume shovel ${row.name}?` : `Pause shovel ${row.name}?`,
    body: isPaused ? (
      <p>It goes on from where it was: {plural(row.forwarded ?? 0, "message")} moved so far.</p>
    ) : (
      <p>
        What is on its way arrives; then nothing is moved until you resume. Its source keeps what it has. It holds on all nodes and over restarts.
      </p>
    ),
    verb: isPaused ? "Resume" : "Pause",
    isHarmless: true,
    command: command(isPaused ? "resume_shovel" : "pause_shovel", row),
    run: () => act("PUT", path(row, isPaused ? "/resume" : "/pause"), {}).finally(done),
    done: `Shovel ${row.name} is ${isPaused ? "resumed" : "being paused"}`,
  });
}

function askRestart(row: Shovel, done: () => void): void {
  ask({
    title: `Restart shovel ${row.name}?`,
    body: <p>Both its connections are opened anew. What was not confirmed yet is moved again, so it may come twice.</p>,
    verb: "Restart",
    isHarmless: true,
    command: command("restart_shovel", row),
    run: () => act("DELETE", path(row, "/restart")).finally(done),
    done: `Shovel ${row.name} begins anew`,
  });
}

function askDelete(row: Shovel, done: () => void): void {
  ask({
    title: `Delete shovel ${row.name}?`,
    body: (
      <p>
        It ends, and its definition is <strong>gone for good</strong>. No message is: what it has not moved stays at its source.
      </p>
    ),
    verb: "Delete shovel",
    typed: row.name,
    command: command("delete_shovel", row),
    run: () => act("DELETE", path(row)).finally(done),
    done: `Shovel ${row.name} is deleted`,
  });
}

function End({ row, side }: { row: Shovel; side: "src" | "dest" }): JSX.Element {
  const { what, where } = endOf(row, side);
  return (
    <>
      <Name text={what} />
      <div class="dim small">{where}</div>
    </>
  );
}

function State({ row }: { row: Shovel }): JSX.Element {
  return (
    <>
      <Badge tone={toneOf(row)}>{row.blocked_status === "blocked" ? "blocked" : row.state}</Badge>
      {row.state === "paused" && row.paused_by && (
        <div class="dim small">
          by {row.paused_by}, {row.paused_at && <Time at={row.paused_at} />}
        </div>
      )}
      {row.reason && <div class="small">{row.reason}</div>}
      {row.last_error && row.last_error !== row.reason && (
        <div class="small">
          last error: {row.last_error}
          {row.last_error_at && (
            <>
              , <Time at={row.last_error_at} />
            </>
          )}
        </div>
      )}
    </>
  );
}

export function ShovelsPage(): JSX.Element {
  const [turn, setTurn] = useState(0);
  const again = () => setTurn((before) => before + 1);
  return (
    <>
      <PageHead title="Shovels" sub="They move messages from a queue or exchange to another, here or on another broker, and lose none.">
        {may.makePolicies() && <DrawerButton title="Add a shovel" />}
      </PageHead>
      <Panel>
        <List<Shovel>
          key={turn}
          path={within("shovels")}
          noun="shovels"
          keyOf={(row) => `${row.vhost} ${row.name}`}
          empty={
            <Empty title="There is no shovel." command={EXAMPLE}>
              A shovel that works shows up here within a second{may.makePolicies() && "; you can add one below"}.
            </Empty>
          }
          columns={[
            {
              title: "Name",
              sort: "name",
              show: (row) => (
                <>
                  <Name text={row.name} />
                  <InVhost name={row.vhost} />
                </>
              ),
            },
            { title: "State", sort: "state", show: (row) => <State row={row} /> },
            { title: "Source", wide: true, show: (row) => <End row={row} side="src" /> },
            { title: "Destination", wide: true, show: (row) => <End row={row} side="dest" /> },
            { title: "Moved", sort: "forwarded", numeric: true, show: (row) => count(row.forwarded) },
            { title: "Rate", sort: "rate", numeric: true, wide: true, show: (row) => rate(row.rate) },
            { title: "Pending", sort: "pending", numeric: true, wide: true, hidden: true, show: (row) => count(row.pending) },
            { title: "Left", sort: "remaining", numeric: true, wide: true, hidden: true, show: (row) => count(row.remaining) },
            { title: "Node", sort: "node", wide: true, hidden: true, show: (row) => shortNode(row.node ?? "") },
            {
              title: "",
              show: (row) =>
                may.makePolicies() && (
                  <span class="row-actions">
                    <button type="button" class="quiet" onClick={() => askPause(row, again)}>
                      {row.state === "paused" ? "Resume …" : "Pause …"}
                    </button>
                    <button type="button" class="quiet" onClick={() => askRestart(row, again)}>
                      Restart …
                    </button>
                    <button type="button" class="quiet danger" onClick={() => askDelete(row, again)}>
                      Delete …
                    </button>
                  </span>
                ),
            },
          ]}
        />
      </Panel>
      {may.makePolicies() && (
        <Drawer title="Add a shovel">
          <AddShovel onDone={again} />
        </Drawer>
      )}
    </>
  );
}

const KINDS: [string, string][] = [
  ["queue", "queue"],
  ["exchange", "exchange"],
];
const ACK_MODES: [string, string][] = [
  ["on-confirm", "on confirm: nothing is lost"],
  ["on-publish", "on publish: faster, a crash may lose some"],
  ["no-ack", "no acknowledgements: fastest, loses what is on its way"],
];
const ENDS: [string, string][] = [
  ["never", "never"],
  ["queue-length", "when all that is there now is moved"],
];

function AddShovel({ onDone }: { onDone: () => void }): JSX.Element {
  const [where, setWhere] = useState(vhost.value || "/");
  const [name, setName] = useState("");
  const [form, setForm] = useState<ShovelForm>(NEW_SHOVEL);
  const set = (change: Partial<ShovelForm>) => setForm({ ...form, ...change });
  const definition = definitionOf(form);
  async function add(event: Event): Promise<void> {
    event.preventDefault();
    if (await attempt(() => act("PUT", `parameters/shovel/${quote(where, name)}`, { value: definition }), `Shovel ${name} begins`)) {
      setName("");
      onDone();
    }
  }
  return (
    <form class="form" onSubmit={(event) => void add(event)}>
      <Field label="Virtual host">
        <VhostChoice value={where} onChange={setWhere} />
      </Field>
      <Field label="Name">
        <Text value={name} onChange={setName} name="shovel-name" required />
      </Field>
      <Field label="Source broker" hint="amqp:// alone is this cluster; amqp://user:password@host/vhost another">
        <Text value={form.srcUri} onChange={(srcUri) => set({ srcUri })} required />
      </Field>
      <Field label="Takes from">
        <Choice value={form.srcKind} options={KINDS} onChange={(kind) => set({ srcKind: kind as ShovelForm["srcKind"] })} />
      </Field>
      <Field label={`Name of the source ${form.srcKind}`}>
        <Text value={form.srcName} onChange={(srcName) => set({ srcName })} name="shovel-src" required />
      </Field>
      {form.srcKind === "exchange" && (
        <Field label="Routing key" hint="A queue of its own is bound with it">
          <Text value={form.srcKey} onChange={(srcKey) => set({ srcKey })} />
        </Field>
      )}
      <Field label="Destination broker">
        <Text value={form.destUri} onChange={(destUri) => set({ destUri })} required />
      </Field>
      <Field label="Gives to">
        <Choice value={form.destKind} options={KINDS} onChange={(kind) => set({ destKind: kind as ShovelForm["destKind"] })} />
      </Field>
      <Field label={`Name of the destination ${form.destKind}`} hint={form.destKind === "queue" ? "One that is not there is made" : undefined}>
        <Text value={form.destName} onChange={(destName) => set({ destName })} name="shovel-dest" required />
      </Field>
      {form.destKind === "exchange" && (
        <Field label="With routing key" hint="Messages keep theirs when it is empty">
          <Text value={form.destKey} onChange={(destKey) => set({ destKey })} />
        </Field>
      )}
      <Field label="Acknowledges">
        <Choice value={form.ackMode} options={ACK_MODES} onChange={(ackMode) => set({ ackMode })} />
      </Field>
      <Field label="Ends">
        <Choice value={form.deleteAfter} options={ENDS} onChange={(deleteAfter) => set({ deleteAfter })} />
      </Field>
      <button type="submit" class="primary">
        Add shovel
      </button>
      <Same text={`warrenctl set_parameter -p ${shellWord(where)} shovel ${shellWord(name || "NAME")} ${shellWord(JSON.stringify(definition))}`} />
    </form>
  );
}

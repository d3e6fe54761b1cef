import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, curlOf, may, quote } from "../api";
import { count, plural, rate, shellWord } from "../format";
import { useLive } from "../live";
import { Chart } from "../parts/chart";
import { ask, attempt } from "../parts/dialog";
import { Drawer, DrawerButton, Field, Text } from "../parts/forms";
import { Badge, Facts, Loaded, PageHead, Panel, Same, Tile } from "../parts/small";
import { List } from "../parts/table";
import { go, href, place } from "../router";
import { rateLines, spanQuery } from "../samples";
import { vhost as chosen } from "../state";
import type { Stats } from "../types";
import { rateOf } from "./channels";
import { MESSAGE_RATES } from "./overview";
import { PermissionsPanel } from "./users";

interface Vhost {
  name: string;
  description?: string;
  tags?: string[];
  tracing?: boolean;
  messages?: number;
  messages_ready?: number;
  messages_unacknowledged?: number;
  message_stats?: Stats;
}

async function askDelete(row: Vhost, done: () => void): Promise<void> {
  ask({
    title: `Delete virtual host ${row.name}?`,
    body: (
      <p>
        <strong>Everything in it is gone for good</strong>: all its queues with {plural(row.messages ?? 0, "message")}, exchanges, bindings, policies and permissions. Whoever is connected to it is
        sent away.
      </p>
    ),
    verb: "Delete it all",
    typed: row.name,
    command: `warrenctl delete_vhost ${shellWord(row.name)}`,
    run: async () => {
      await act("DELETE", `vhosts/${quote(row.name)}`);
      if (chosen.value === row.name) chosen.value = "";
      done();
    },
    done: `Virtual host ${row.name} is gone`,
  });
}

export function VhostsPage(): JSX.Element {
  const [turn, setTurn] = useState(0);
  return (
    <>
      <PageHead title="Virtual hosts">
        {may.administrate() && <DrawerButton title="Add a virtual host" />}
      </PageHead>
      <Panel>
        <List<Vhost>
          key={turn}
          path="vhosts"
          noun="virtual hosts"
          keyOf={(row) => row.name}
          columns={[
            { title: "Name", sort: "name", show: (row) => <a href={href(["vhosts", row.name])}>{row.name}</a> },
            { title: "Description", wide: true, show: (row) => row.description },
            { title: "Ready", sort: "messages_ready", numeric: true, show: (row) => count(row.messages_ready) },
            { title: "Unacked", sort: "messages_unacknowledged", numeric: true, show: (row) => count(row.messages_unacknowledged) },
            { title: "In", numeric: true, wide: true, show: (row) => rate(rateOf(row.message_stats, "publish")) },
            { title: "Out", numeric: true, wide: true, show: (row) => rate(rateOf(row.message_stats, "deliver_get")) },
            { title: "", show: (row) => row.tracing && <Badge tone="warn">tracing</Badge> },
          ]}
        />
      </Panel>
      {may.administrate() && (
        <Drawer title="Add a virtual host">
          <VhostForm onDone={() => setTurn(turn + 1)} />
        </Drawer>
      )}
    </>
  );
}

function VhostForm({ row, onDone }: { row?: Vhost; onDone: () => void }): JSX.Element {
  const [name, setName] = useState(row?.name ?? "");
  const [description, setDescription] = useState(row?.description ?? "");
  const path = `vhosts/${quote(name)}`;
  async function save(event: Event): Promise<void> {
    event.preventDefault();
    if (await attempt(() => act("PUT", path, { description }), `Virtual host ${name} is there`)) onDone();
  }
  return (
    <form class="form" onSubmit={(event) => void save(event)}>
      {!row && (
        <Field label="Name">
          <Text value={name} onChange={setName} required />
        </Field>
      )}
      <Field label="Description">
        <Text value={description} onChange={setDescription} />
      </Field>
      <button type="submit" class="primary">
        {row ? "Save" : "Add virtual host"}
      </button>
      <Same text={row ? curlOf("PUT", path, { description }) : `warrenctl add_vhost ${shellWord(name || "NAME")}${description ? ` --description ${shellWord(description)}` : ""}`} />
    </form>
  );
}

export function VhostPage({ name }: { name: string }): JSX.Element {
  const span = place.value.query.get("span") ?? "10m";
  const live = useLive<Vhost>(`vhosts/${quote(name)}?${spanQuery(span, "msg_rates")}`);
  const permissions = useLive<never[]>(may.administrate() ? `vhosts/${quote(name)}/permissions` : null);
  function trace(row: Vhost): void {
    ask({
      title: row.tracing ? `Stop tracing ${row.name}?` : `Trace ${row.name}?`,
      body: <p>{row.tracing ? "Messages are not copied any more." : "A copy of every message that is published or delivered goes to amq.rabbitmq.trace, which costs time. It ends with the node."}</p>,
      verb: row.tracing ? "Stop" : "Trace",
      isHarmless: true,
      command: `warrenctl trace_${row.tracing ? "off" : "on"} -p ${shellWord(row.name)}`,
      run: () => act("PUT", `vhosts/${quote(name)}`, { description: row.description, tracing: !row.tracing }).finally(live.refresh),
      done: row.tracing ? "Tracing is off" : "Every message is copied to amq.rabbitmq.trace",
    });
  }
  return (
    <Loaded live={live} head={<PageHead title={name} trail={[["Virtual hosts", "#/vhosts"]]} />}>
      {(row) => (
        <>
          <PageHead title={row.name} trail={[["Virtual hosts", "#/vhosts"]]} sub={row.description}>
            {may.administrate() && (
              <>
                <button type="button" onClick={() => trace(row)}>
                  {row.tracing ? "Stop tracing …" : "Trace …"}
                </button>
                <button type="button" class="danger" onClick={() => void askDelete(row, () => go(["vhosts"]))}>
                  Delete …
                </button>
              </>
            )}
          </PageHead>
          <div class="tiles">
            <Tile name="Ready" value={count(row.messages_ready)} />
            <Tile name="Unacked" value={count(row.messages_unacknowledged)} />
            <Tile name="In" value={rate(rateOf(row.message_stats, "publish"))} />
            <Tile name="Out" value={rate(rateOf(row.message_stats, "deliver_get"))} />
          </div>
          <Panel title="Message rates">
            <Chart title="Message rates" lines={rateLines(row.message_stats, MESSAGE_RATES)} show={rate} />
          </Panel>
          <Panel title="Details">
            <Facts
              rows={[
                ["Tags", row.tags?.join(", ")],
                ["Tracing", row.tracing ? "on: every message is copied to amq.rabbitmq.trace" : "off"],
              ]}
            />
          </Panel>
          {may.administrate() && (
            <>
              <PermissionsPanel rows={permissions.data ?? []} onChange={permissions.refresh} vhost={name} />
              <Drawer title="Change the description">
                <VhostForm row={row} onDone={live.refresh} />
              </Drawer>
            </>
          )}
        </>
      )}
    </Loaded>
  );
}

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, curlOf, quote } from "../api";
import { plural, rate, shellCommands } from "../format";
import { useLive } from "../live";
import { AddForm, YesOrNo } from "../parts/adding";
import { Chart } from "../parts/chart";
import { ask } from "../parts/dialog";
import { Choice, Drawer, DrawerButton, Field } from "../parts/forms";
import { Arguments, Badge, Empty, Facts, InVhost, Loaded, Name, PageHead, Panel, Rate } from "../parts/small";
import { List, Plain } from "../parts/table";
import { go, href, place } from "../router";
import { rateLines, spanQuery } from "../samples";
import { vhost, within } from "../state";
import type { Binding, Exchange } from "../types";
import { AddBinding, bindingColumns, pathName } from "./bindings";
import { rateOf } from "./channels";
import { Publish } from "./messages";
import { SpanChoice } from "./overview";

const TYPES = ["direct", "fanout", "topic", "headers", "x-consistent-hash", "x-delayed-message"];

const EXCHANGE_RATES: [string, string][] = [
  ["publish_in", "Published to it"],
  ["publish_out", "Passed on to queues"],
];

function isBuiltIn(name: string): boolean {
  return name === "" || name.startsWith("amq.");
}

function askDelete(rows: Exchange[], done: () => void): void {
  const one = rows.length === 1 ? rows[0]! : null;
  ask({
    title: one ? `Delete exchange ${one.name}?` : `Delete ${plural(rows.length, "exchange")}?`,
    body: (
      <>
        <p>
          All bindings from and to {one ? "it" : "them"} go as well. <strong>Whoever publishes to {one ? "it" : "one of them"} afterwards gets an error</strong> and loses the channel. Messages
          in queues stay.
        </p>
        <ul class="names">
          {rows.map((row) => (
            <li>
              <code>{row.name}</code> in <code>{row.vhost}</code>
            </li>
          ))}
        </ul>
      </>
    ),
    verb: "Delete",
    typed: one ? one.name : `delete ${rows.length}`,
    command: shellCommands(rows.map((row) => curlOf("DELETE", `exchanges/${quote(row.vhost, row.name)}`))),
    run: async () => {
      for (const row of rows) await act("DELETE", `exchanges/${quote(row.vhost, row.name)}`);
      done();
    },
    done: `${plural(rows.length, "exchange")} deleted`,
  });
}

export function ExchangesPage(): JSX.Element {
  return (
    <>
      <PageHead title="Exchanges">
        <DrawerButton title="Add an exchange" />
      </PageHead>
      <Panel>
        <List<Exchange>
          path={within("exchanges")}
          noun="exchanges"
          empty={<Empty title="There is no exchange here." command={curlOf("PUT", `exchanges/${quote(vhost.value || "/", "NAME")}`, { type: "topic" })} />}
          keyOf={(row) => `${row.vhost} ${row.name}`}
          bulk={(rows, clear) => {
            const own = rows.filter((row) => !isBuiltIn(row.name));
            return (
              <button type="button" class="danger" disabled={own.length === 0} onClick={() => askDelete(own, clear)}>
                Delete …
              </button>
            );
          }}
          columns={[
            {
              title: "Name",
              sort: "name",
              show: (row) => (
                <>
                  <a href={href(["exchanges", row.vhost, pathName(row.name)])}><Name text={row.name || "(default exchange)"} /></a>
                  <InVhost name={row.vhost} />
                </>
              ),
            },
            { title: "Type", sort: "type", show: (row) => row.type },
            {
              title: "Features",
              wide: true,
              show: (row) => (
                <span class="marks">
                  {row.durable && <Badge title="durable">D</Badge>}
                  {row.auto_delete && <Badge title="deleted when nothing is bound any more">AD</Badge>}
                  {row.internal && <Badge title="internal: clients cannot publish to it">I</Badge>}
                  {row.policy && <Badge title="policy">{row.policy}</Badge>}
                </span>
              ),
            },
            { title: "In", sort: "message_stats.publish_in_details.rate", numeric: true, show: (row) => <Rate value={rateOf(row.message_stats, "publish_in")} /> },
            { title: "Out", sort: "message_stats.publish_out_details.rate", numeric: true, show: (row) => <Rate value={rateOf(row.message_stats, "publish_out")} /> },
          ]}
        />
      </Panel>
      <Drawer title="Add an exchange">
        <AddExchange />
      </Drawer>
    </>
  );
}

function AddExchange(): JSX.Element {
  const [type, setType] = useState("direct");
  const [durable, setDurable] = useState(true);
  return (
    <AddForm noun="Exchange" settings={{ type, durable, auto_delete: false, internal: false }} known={["alternate-exchange", "x-delayed-type", "hash-header"]}>
      <Field label="Type">
        <Choice value={type} onChange={setType} options={TYPES.map((each) => [each, each])} />
      </Field>
      <YesOrNo label="Durable" value={durable} onChange={setDurable} />
    </AddForm>
  );
}

export function ExchangePage(props: { vhost: string; name: string }): JSX.Element {
  const path = `exchanges/${quote(props.vhost, props.name)}`;
  const span = place.value.query.get("span") ?? "10m";
  const live = useLive<Exchange>(`${path}?${spanQuery(span, "msg_rates")}`);
  const from = useLive<Binding[]>(`${path}/bindings/source`);
  const to = useLive<Binding[]>(`${path}/bindings/destination`);
  const refresh = () => {
    from.refresh();
    to.refresh();
  };
  return (
    <Loaded live={live} head={<PageHead title={props.name} trail={[["Exchanges", "#/exchanges"]]} />}>
      {(exchange) => (
        <>
          <PageHead
            title={exchange.name || "(default exchange)"}
            trail={[["Exchanges", "#/exchanges"]]}
            sub={
              <>
                {exchange.type} exchange in virtual host <code>{exchange.vhost}</code>
              </>
            }
          >
            <SpanChoice />
            {!isBuiltIn(exchange.name) && (
              <button type="button" class="danger" onClick={() => askDelete([exchange], () => go(["exchanges"]))}>
                Delete …
              </button>
            )}
          </PageHead>
          <div class="two">
            <Panel title="Message rates">
              <Chart title="Message rates" lines={rateLines(exchange.message_stats, EXCHANGE_RATES)} show={rate} />
            </Panel>
            <Panel title="Details">
              <Facts
                rows={[
                  ["Durable", exchange.durable ? "yes" : "no"],
                  ["Auto-delete", exchange.auto_delete ? "yes" : "no"],
                  ["Internal", exchange.internal ? "yes" : "no"],
                  ["Policy", exchange.policy ? <a href={href(["policies"], { name: exchange.policy })}>{exchange.policy}</a> : "none"],
                  ["Arguments", <Arguments value={exchange.arguments} />],
                ]}
              />
            </Panel>
          </div>
          {exchange.name === "" ? (
            <Panel title="Leads to">
              <p class="dim">Every queue, by its name as the routing key. Nothing can be bound to it.</p>
            </Panel>
          ) : (
            <>
              <Panel title="Leads to">
                <Loaded live={from}>
                  {(rows) => (
                    <Plain label="Bindings from here" rows={rows} keyOf={(row) => `${row.destination_type} ${row.destination} ${row.properties_key}`} columns={bindingColumns(refresh, "From")} empty={<strong>Nothing is bound: what is published here is dropped or returned.</strong>} />
                  )}
                </Loaded>
              </Panel>
              {(to.data?.length ?? 0) > 0 && (
                <Panel title="Fed by">
                  <Plain label="Bindings to here" rows={to.data ?? []} keyOf={(row) => `${row.source} ${row.properties_key}`} columns={bindingColumns(refresh, "To")} />
                </Panel>
              )}
              <Drawer title="Bind something to it">
                <AddBinding fixed={{ kind: "e", name: exchange.name, vhost: exchange.vhost, isSource: true }} others={[]} onDone={refresh} />
              </Drawer>
            </>
          )}
          {!exchange.internal && (
            <Drawer title="Publish a message">
              <Publish vhost={exchange.vhost} exchange={exchange.name} routingKey="" />
            </Drawer>
          )}
        </>
      )}
    </Loaded>
  );
}

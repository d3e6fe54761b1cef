import type { JSX } from "preact";

import { act, may, quote, session } from "../api";
import { bytes, plural, shellCommands, shellWord, shortNode } from "../format";
import { useLive } from "../live";
import { Chart } from "../parts/chart";
import { ask } from "../parts/dialog";
import { Badge, Empty, Facts, Json, Loaded, PageHead, Panel, stateTone, Time } from "../parts/small";
import { List, Plain } from "../parts/table";
import { go, href, place } from "../router";
import { type Details, rateLines, spanQuery } from "../samples";
import { vhost } from "../state";
import type { Stats } from "../types";
import { type Channel, CHANNEL_COLUMNS } from "./channels";
import { SpanChoice } from "./overview";

interface Connection {
  name: string;
  user_provided_name?: string;
  vhost: string;
  user: string;
  state: string;
  node: string;
  channels: number;
  ssl: boolean;
  protocol: string;
  peer_host: string;
  peer_port: number;
  connected_at: number;
  client_properties: Record<string, unknown>;
  timeout: number;
  frame_max: number;
  auth_mechanism: string;
  recv_oct_details?: Details;
  send_oct_details?: Details;
  recv_oct: number;
  send_oct: number;
}

/** Administrators close all, everybody else their own. */
function mayClose(row: Connection): boolean {
  return may.administrate() || row.user === session.value?.name;
}

function close(rows: Connection[], done: () => void): void {
  ask({
    title: rows.length === 1 ? `Close connection ${rows[0]!.name}?` : `Close ${plural(rows.length, "connection")}?`,
    body: (
      <>
        <p>
          The {rows.length === 1 ? "client is" : "clients are"} told and sent away. Their unacknowledged messages go back to their queues; exclusive queues of theirs are deleted.
          Most clients connect again at once.
        </p>
        <ul class="names">
          {rows.slice(0, 20).map((row) => (
            <li>
              <code>{row.name}</code> {row.user}
            </li>
          ))}
        </ul>
      </>
    ),
    verb: "Close",
    command: shellCommands(rows.map((row) => `warrenctl close_connection ${shellWord(row.name)} "closed by an operator"`)),
    run: async () => {
      for (const row of rows) {
        await act("DELETE", `connections/${quote(row.name)}`, undefined, { "X-Reason": "closed by an operator in the web UI" });
      }
      done();
    },
    done: `${plural(rows.length, "connection")} closed`,
  });
}

export function ConnectionsPage(): JSX.Element {
  const path = vhost.value ? `vhosts/${quote(vhost.value)}/connections` : "connections";
  return (
    <>
      <PageHead title="Connections" />
      <Panel>
        <List<Connection>
          path={path}
          noun="connections"
          keyOf={(row) => row.name}
          bulk={(rows, clear) => (
            <button
              type="button"
              class="danger"
              disabled={!rows.every(mayClose)}
              title={rows.every(mayClose) ? undefined : "only administrators close the connections of others"}
              onClick={() => close(rows, clear)}
            >
              Close …
            </button>
          )}
          empty={<Empty title="Nobody is connected." command="warrenctl status" />}
          columns={[
            {
              title: "Client",
              sort: "name",
              show: (row) => (
                <>
                  <a href={href(["connections", row.name])}>{row.user_provided_name ?? row.name}</a>
                  {row.user_provided_name && <div class="dim small wide">{row.name}</div>}
                </>
              ),
            },
            { title: "User", sort: "user", show: (row) => row.user },
            { title: "Vhost", sort: "vhost", wide: true, show: (row) => <code>{row.vhost}</code> },
            { title: "Node", sort: "node", wide: true, show: (row) => shortNode(row.node) },
            { title: "State", sort: "state", show: (row) => <Badge tone={stateTone(row.state)}>{row.state}</Badge> },
            { title: "TLS", wide: true, show: (row) => (row.ssl ? "yes" : "no") },
            { title: "Channels", sort: "channels", numeric: true, wide: true, show: (row) => row.channels },
            { title: "From client", sort: "recv_oct_details.rate", numeric: true, wide: true, show: (row) => `${bytes(Math.round(row.recv_oct_details?.rate ?? 0))}/s` },
            { title: "To client", sort: "send_oct_details.rate", numeric: true, wide: true, show: (row) => `${bytes(Math.round(row.send_oct_details?.rate ?? 0))}/s` },
            { title: "Peer", sort: "peer_host", wide: true, hidden: true, show: (row) => <code>{`${row.peer_host}:${row.peer_port}`}</code> },
            { title: "Protocol", sort: "protocol", wide: true, hidden: true, show: (row) => row.protocol },
            { title: "Since", sort: "connected_at", wide: true, hidden: true, show: (row) => <Time at={row.connected_at} /> },
            { title: "Received", sort: "recv_oct", numeric: true, wide: true, hidden: true, show: (row) => bytes(row.recv_oct) },
            { title: "Sent", sort: "send_oct", numeric: true, wide: true, hidden: true, show: (row) => bytes(row.send_oct) },
          ]}
        />
      </Panel>
    </>
  );
}

export function ConnectionPage({ name }: { name: string }): JSX.Element {
  const span = place.value.query.get("span") ?? "10m";
  const live = useLive<Connection>(`connections/${quote(name)}?${spanQuery(span, "data_rates")}`);
  const channels = useLive<Channel[]>(`connections/${quote(name)}/channels`);
  return (
    <Loaded live={live} head={<PageHead title={name} trail={[["Connections", "#/connections"]]} />}>
      {(row) => (
        <>
          <PageHead title={row.user_provided_name ?? row.name} trail={[["Connections", "#/connections"]]} sub={row.user_provided_name && row.name}>
            <SpanChoice />
            {mayClose(row) && (
              <button type="button" class="danger" onClick={() => close([row], () => go(["connections"]))}>
                Close …
              </button>
            )}
          </PageHead>
          <div class="two">
            <Panel title="Data">
              <Chart
                title="Data rates"
                lines={rateLines(row as unknown as Stats, [
                  ["recv_oct", "From client"],
                  ["send_oct", "To client"],
                ])}
                show={(value) => `${bytes(Math.round(value))}/s`}
                isBytes
              />
            </Panel>
            <Panel title="Details" actions={<Badge tone={stateTone(row.state)}>{row.state}</Badge>}>
              <Facts
                rows={[
                  ["User", row.user],
                  ["Virtual host", <code>{row.vhost}</code>],
                  ["Node", row.node],
                  ["Protocol", `${row.protocol}${row.ssl ? ", TLS" : ""}`],
                  ["Logged in by", row.auth_mechanism],
                  ["Since", <Time at={row.connected_at} />],
                  ["Heartbeat", row.timeout ? `${row.timeout} s` : "off"],
                  ["Largest frame", bytes(row.frame_max)],
                  ["So far", `${bytes(row.recv_oct)} in, ${bytes(row.send_oct)} out`],
                ]}
              />
            </Panel>
          </div>
          <Panel title="Channels">
            <Plain label="Channels" rows={channels.data ?? []} keyOf={(each) => each.name} columns={CHANNEL_COLUMNS} empty={<strong>No channel is open.</strong>} />
          </Panel>
          <Panel title="What the client says of itself">
            <Facts rows={Object.entries(row.client_properties).map(([key, value]) => [key, typeof value === "string" ? value : <Json value={value} />])} />
          </Panel>
        </>
      )}
    </Loaded>
  );
}


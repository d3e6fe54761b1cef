import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, curlOf, may, quote } from "../api";
import { count, shellWord } from "../format";
import { useLive } from "../live";
import { ask, attempt } from "../parts/dialog";
import { Choice, Drawer, Field, Text, VhostChoice } from "../parts/forms";
import { Empty, Loaded, PageHead, Panel, Same } from "../parts/small";
import { Plain } from "../parts/table";

interface Limits {
  vhost?: string;
  user?: string;
  value: Record<string, number>;
}

interface Row {
  of: string;
  limit: string;
  value: number;
}

const flat = (rows: Limits[]): Row[] => rows.flatMap((row) => Object.entries(row.value).map(([limit, value]) => ({ of: row.vhost ?? row.user ?? "", limit, value })));

export function LimitsPage(): JSX.Element {
  return (
    <>
      <PageHead title="Limits" sub="How much virtual hosts and users may have. What is there already stays when a limit is set below it." />
      <Table title="Virtual hosts" path="vhost-limits" what="virtual host" limits={["max-connections", "max-queues"]} />
      {may.administrate() && <Table title="Users" path="user-limits" what="user" limits={["max-connections", "max-channels"]} />}
    </>
  );
}

function Table(props: { title: string; path: string; what: string; limits: string[] }): JSX.Element {
  const live = useLive<Limits[]>(props.path);
  const [of, setOf] = useState(props.what === "user" ? "" : "/");
  const [limit, setLimit] = useState(props.limits[0]!);
  const [value, setValue] = useState("");
  const json = shellWord(JSON.stringify({ [limit]: Number(value) }));
  async function save(event: Event): Promise<void> {
    event.preventDefault();
    if (await attempt(() => act("PUT", `${props.path}/${quote(of, limit)}`, { value: Number(value) }), "The limit holds")) live.refresh();
  }
  function lift(row: Row): void {
    ask({
      title: `Lift ${row.limit} of ${row.of}?`,
      body: <p>There is no limit then.</p>,
      verb: "Lift",
      command: curlOf("DELETE", `${props.path}/${quote(row.of, row.limit)}`),
      run: async () => {
        await act("DELETE", `${props.path}/${quote(row.of, row.limit)}`);
        live.refresh();
      },
      done: `${row.of} has no ${row.limit} any more`,
    });
  }
  return (
    <Panel title={props.title}>
      <Loaded live={live}>
        {(rows) => (
          <Plain
            label={`Limits of ${props.title}`}
            rows={flat(rows)}
            keyOf={(row) => `${row.of} ${row.limit}`}
            empty={<Empty title="No limit is set." command={props.what === "user" ? `warrenctl set_user_limits USER '{"max-connections": 20}'` : `warrenctl set_vhost_limits -p / '{"max-queues": 100}'`} />}
            columns={[
              { title: props.what === "user" ? "User" : "Virtual host", show: (row) => <code>{row.of}</code> },
              { title: "Limit", show: (row) => row.limit },
              { title: "Value", numeric: true, show: (row) => count(row.value) },
              {
                title: "",
                show: (row) =>
                  may.administrate() && (
                    <button type="button" class="quiet" onClick={() => lift(row)}>
                      Lift …
                    </button>
                  ),
              },
            ]}
          />
        )}
      </Loaded>
      {may.administrate() && (
        <Drawer title={`Set a limit of a ${props.what === "user" ? "user" : "virtual host"}`}>
          <form class="form" onSubmit={(event) => void save(event)}>
            <Field label={props.what === "user" ? "User" : "Virtual host"}>{props.what === "user" ? <Text value={of} onChange={setOf} required /> : <VhostChoice value={of} onChange={setOf} />}</Field>
            <Field label="Limit">
              <Choice value={limit} onChange={setLimit} options={props.limits.map((each) => [each, each])} />
            </Field>
            <Field label="Value">
              <Text type="number" value={value} onChange={setValue} required />
            </Field>
            <button type="submit" class="primary">
              Set
            </button>
            <Same text={props.what === "user" ? `warrenctl set_user_limits ${shellWord(of || "USER")} ${json}` : `warrenctl set_vhost_limits -p ${shellWord(of)} ${json}`} />
          </form>
        </Drawer>
      )}
    </Panel>
  );
}

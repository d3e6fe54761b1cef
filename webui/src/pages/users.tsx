import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, quote, session } from "../api";
import { plural, shellCommands, shellWord } from "../format";
import { useLive } from "../live";
import { ask, attempt } from "../parts/dialog";
import { Drawer, DrawerButton, Field, Text, VhostChoice } from "../parts/forms";
import { Arguments, Badge, Empty, Facts, Loaded, PageHead, Panel, Same } from "../parts/small";
import { List, Plain } from "../parts/table";
import { go, href } from "../router";

interface User {
  name: string;
  tags: string[] | string;
  password_hash?: string;
  limits?: Record<string, number>;
}

interface Permission {
  user: string;
  vhost: string;
  configure: string;
  write: string;
  read: string;
}

interface TopicPermission {
  user: string;
  vhost: string;
  exchange: string;
  write: string;
  read: string;
}

const TAGS: [string, string][] = [
  ["administrator", "everything"],
  ["monitoring", "sees all nodes, virtual hosts and connections"],
  ["policymaker", "policies and parameters where it has permissions"],
  ["management", "own virtual hosts and connections"],
];

function tagsOf(user: User): string[] {
  return Array.isArray(user.tags) ? user.tags : user.tags.split(",").filter((tag) => tag);
}

function askDelete(users: User[], done: () => void): void {
  const one = users.length === 1 ? users[0]! : null;
  ask({
    title: one ? `Delete user ${one.name}?` : `Delete ${plural(users.length, "user")}?`,
    body: (
      <>
        <p>
          Their permissions go as well and <strong>their connections are closed</strong>. What they declared stays.
        </p>
        <ul class="names">
          {users.map((user) => (
            <li>{user.name}</li>
          ))}
        </ul>
      </>
    ),
    verb: "Delete",
    typed: one ? one.name : `delete ${users.length}`,
    command: shellCommands(users.map((user) => `warrenctl delete_user ${shellWord(user.name)}`)),
    run: async () => {
      await act("POST", "users/bulk-delete", { users: users.map((user) => user.name) });
      done();
    },
    done: `${plural(users.length, "user")} deleted`,
  });
}

export function UsersPage(): JSX.Element {
  const [turn, setTurn] = useState(0);
  return (
    <>
      <PageHead title="Users">
        <DrawerButton title="Add a user" />
      </PageHead>
      <Panel>
        <List<User>
          key={turn}
          path="users"
          noun="users"
          keyOf={(row) => row.name}
          bulk={(rows, clear) => (
            <button
              type="button"
              class="danger"
              disabled={rows.some((row) => row.name === session.value?.name)}
              title={rows.some((row) => row.name === session.value?.name) ? "you are one of them" : undefined}
              onClick={() =>
                askDelete(rows, () => {
                  clear();
                  setTurn(turn + 1);
                })
              }
            >
              Delete …
            </button>
          )}
          columns={[
            { title: "Name", sort: "name", show: (row) => <a href={href(["users", row.name])}>{row.name}</a> },
            { title: "Tags", show: (row) => tagsOf(row).map((tag) => <Badge>{tag}</Badge>) },
            { title: "Password", show: (row) => (row.password_hash ? "set" : <Badge tone="warn">none: cannot log in by one</Badge>) },
          ]}
        />
      </Panel>
      <Drawer title="Add a user">
        <UserForm onDone={() => setTurn(turn + 1)} />
      </Drawer>
    </>
  );
}

function UserForm({ user, onDone }: { user?: User; onDone: () => void }): JSX.Element {
  const [name, setName] = useState(user?.name ?? "");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const [tags, setTags] = useState(user ? tagsOf(user) : []);
  const isWrong = password !== again;
  const who = shellWord(name || "NAME");
  async function save(event: Event): Promise<void> {
    event.preventDefault();
    // Without a new password the old one has to be sent along, or it would be cleared.
    const secret = password ? { password } : { password_hash: user?.password_hash ?? "" };
    const done = await attempt(() => act("PUT", `users/${quote(name)}`, { ...secret, tags: tags.join(",") }), `User ${name} is there`);
    if (!done) return;
    setPassword("");
    setAgain("");
    if (!user) setName("");
    onDone();
  }
  return (
    <form class="form" onSubmit={(event) => void save(event)}>
      {!user && (
        <Field label="Name">
          <Text value={name} onChange={setName} required />
        </Field>
      )}
      <Field label={user ? "New password" : "Password"} hint={user ? "stays as it is when empty" : undefined}>
        <Text type="password" autocomplete="new-password" value={password} onChange={setPassword} required={!user} />
      </Field>
      <Field label="Once more" error={isWrong && again ? "The two differ." : null}>
        <Text type="password" autocomplete="new-password" value={again} onChange={setAgain} />
      </Field>
      <fieldset class="full">
        <legend>Tags</legend>
        {TAGS.map(([tag, hint]) => (
          <label class="check">
            <input type="checkbox" checked={tags.includes(tag)} onChange={() => setTags(tags.includes(tag) ? tags.filter((each) => each !== tag) : [...tags, tag])} />
            <strong>{tag}</strong> <span class="dim">{hint}</span>
          </label>
        ))}
      </fieldset>
      <button type="submit" class="primary" disabled={isWrong}>
        {user ? "Save" : "Add user"}
      </button>
      <Same text={shellCommands([...(user ? (password ? [`warrenctl change_password ${who}`] : []) : [`warrenctl add_user ${who}`]), `warrenctl set_user_tags ${who} ${tags.join(" ")}`])} />
    </form>
  );
}

export function UserPage({ name }: { name: string }): JSX.Element {
  const live = useLive<User>(`users/${quote(name)}`);
  const permissions = useLive<Permission[]>(`users/${quote(name)}/permissions`);
  const topics = useLive<TopicPermission[]>(`users/${quote(name)}/topic-permissions`);
  return (
    <>
      <PageHead title={name} trail={[["Users", "#/users"]]}>
        {live.data && name !== session.value?.name && (
          <button type="button" class="danger" onClick={() => askDelete([live.data!], () => go(["users"]))}>
            Delete …
          </button>
        )}
      </PageHead>
      <Loaded live={live}>
        {(user) => (
          <>
            <Panel title="Details">
              <Facts
                rows={[
                  ["Tags", tagsOf(user).join(", ") || "none: AMQP only"],
                  ["Password", user.password_hash ? "set" : "none"],
                  ["Limits", <Arguments value={user.limits} />],
                ]}
              />
            </Panel>
            <PermissionsPanel rows={permissions.data ?? []} onChange={permissions.refresh} user={name} />
            <TopicPanel rows={topics.data ?? []} onChange={topics.refresh} user={name} />
            <Drawer title="Change password or tags">
              <UserForm key={tagsOf(user).join()} user={user} onDone={live.refresh} />
            </Drawer>
          </>
        )}
      </Loaded>
    </>
  );
}

export function PermissionsPanel(props: { rows: Permission[]; onChange: () => void; user?: string; vhost?: string }): JSX.Element {
  function revoke(row: Permission): void {
    ask({
      title: `Take ${row.user}'s access to ${row.vhost} away?`,
      body: <p>New connections of the user to this virtual host are refused; what it does on open ones is refused from now on.</p>,
      verb: "Take away",
      command: `warrenctl clear_permissions -p ${shellWord(row.vhost)} ${shellWord(row.user)}`,
      run: async () => {
        await act("DELETE", `permissions/${quote(row.vhost, row.user)}`);
        props.onChange();
      },
      done: `${row.user} may not enter ${row.vhost} any more`,
    });
  }
  return (
    <Panel title="Permissions">
      <Plain
        label="Permissions"
        rows={props.rows}
        keyOf={(row) => `${row.vhost} ${row.user}`}
        empty={<Empty title={props.user ? "No access to any virtual host." : "Nobody may enter."} command={`warrenctl set_permissions -p ${shellWord(props.vhost ?? "/")} ${shellWord(props.user ?? "USER")} '.*' '.*' '.*'`} />}
        columns={[
          props.user
            ? { title: "Virtual host", show: (row) => <a href={href(["vhosts", row.vhost])}>{row.vhost}</a> }
            : { title: "User", show: (row) => <a href={href(["users", row.user])}>{row.user}</a> },
          { title: "Configure", show: (row) => <code>{row.configure || "(nothing)"}</code> },
          { title: "Write", show: (row) => <code>{row.write || "(nothing)"}</code> },
          { title: "Read", show: (row) => <code>{row.read || "(nothing)"}</code> },
          {
            title: "",
            show: (row) => (
              <button type="button" class="quiet" onClick={() => revoke(row)}>
                Take away …
              </button>
            ),
          },
        ]}
      />
      <Drawer title="Set permissions">
        <PermissionForm {...props} />
      </Drawer>
    </Panel>
  );
}

function PermissionForm(props: { onChange: () => void; user?: string; vhost?: string }): JSX.Element {
  const [user, setUser] = useState(props.user ?? "");
  const [where, setWhere] = useState(props.vhost ?? "/");
  const [rights, setRights] = useState({ configure: ".*", write: ".*", read: ".*" });
  async function save(event: Event): Promise<void> {
    event.preventDefault();
    if (await attempt(() => act("PUT", `permissions/${quote(where, user)}`, rights), `${user} may enter ${where}`)) props.onChange();
  }
  const words = [user || "USER", rights.configure, rights.write, rights.read].map((word) => (word ? shellWord(word) : "''"));
  return (
    <form class="form" onSubmit={(event) => void save(event)}>
      {!props.user && (
        <Field label="User">
          <Text value={user} onChange={setUser} required />
        </Field>
      )}
      {!props.vhost && (
        <Field label="Virtual host">
          <VhostChoice value={where} onChange={setWhere} />
        </Field>
      )}
      {(["configure", "write", "read"] as const).map((right) => (
        <Field label={right} hint={{ configure: "declare and delete", write: "publish, bind", read: "consume, get, purge" }[right]}>
          <Text value={rights[right]} onChange={(value) => setRights({ ...rights, [right]: value })} />
        </Field>
      ))}
      <button type="submit" class="primary">
        Set
      </button>
      <Same text={`warrenctl set_permissions -p ${shellWord(where)} ${words.join(" ")}`} />
    </form>
  );
}

function TopicPanel(props: { rows: TopicPermission[]; onChange: () => void; user: string }): JSX.Element {
  const [where, setWhere] = useState("/");
  const [exchange, setExchange] = useState("amq.topic");
  const [write, setWrite] = useState(".*");
  const [read, setRead] = useState(".*");
  async function save(event: Event): Promise<void> {
    event.preventDefault();
    if (await attempt(() => act("PUT", `topic-permissions/${quote(where, props.user)}`, { exchange, write, read }), "Topic permissions are set")) props.onChange();
  }
  function revoke(row: TopicPermission): void {
    ask({
      title: "Remove these topic permissions?",
      body: (
        <p>
          {row.user} may then use any routing key of <code>{row.exchange}</code>, as far as its permissions allow the exchange at all.
        </p>
      ),
      verb: "Remove",
      command: `warrenctl clear_topic_permissions -p ${shellWord(row.vhost)} ${shellWord(row.user)} ${shellWord(row.exchange)}`,
      run: async () => {
        await act("DELETE", `topic-permissions/${quote(row.vhost, row.user, row.exchange)}`);
        props.onChange();
      },
      done: "The topic permissions are gone",
    });
  }
  return (
    <Panel title="Topic permissions">
      <Plain
        label="Topic permissions"
        rows={props.rows}
        keyOf={(row) => `${row.vhost} ${row.exchange}`}
        empty={<span class="dim">None: all routing keys are open.</span>}
        columns={[
          { title: "Virtual host", show: (row) => <code>{row.vhost}</code> },
          { title: "Exchange", show: (row) => row.exchange },
          { title: "Write", show: (row) => <code>{row.write}</code> },
          { title: "Read", show: (row) => <code>{row.read}</code> },
          {
            title: "",
            show: (row) => (
              <button type="button" class="quiet" onClick={() => revoke(row)}>
                Remove …
              </button>
            ),
          },
        ]}
      />
      <Drawer title="Set topic permissions">
        <form class="form" onSubmit={(event) => void save(event)}>
          <Field label="Virtual host">
            <VhostChoice value={where} onChange={setWhere} />
          </Field>
          <Field label="Exchange">
            <Text value={exchange} onChange={setExchange} required />
          </Field>
          <Field label="Write" hint="routing keys it may publish with">
            <Text value={write} onChange={setWrite} />
          </Field>
          <Field label="Read" hint="routing keys it may bind with">
            <Text value={read} onChange={setRead} />
          </Field>
          <button type="submit" class="primary">
            Set
          </button>
          <Same text={`warrenctl set_topic_permissions -p ${shellWord(where)} ${shellWord(props.user)} ${shellWord(exchange)} ${shellWord(write)} ${shellWord(read)}`} />
        </form>
      </Drawer>
    </Panel>
  );
}

// The frame around all pages: navigation, what holds everywhere, and which page is shown.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { logOut, may, refreshUser, session, unreachable } from "./api";
import { paused } from "./live";
import { startKeys } from "./keys";
import { Dialogs } from "./parts/dialog";
import { VhostChoice } from "./parts/forms";
import { Empty } from "./parts/small";
import { ChannelPage, ChannelsPage } from "./pages/channels";
import { ClusterPage } from "./pages/cluster";
import { ConnectionPage, ConnectionsPage } from "./pages/connections";
import { DeadLettersPage } from "./pages/deadletters";
import { DefinitionsPage } from "./pages/definitions";
import { ExchangePage, ExchangesPage } from "./pages/exchanges";
import { KeysPage } from "./pages/keyshelp";
import { LimitsPage } from "./pages/limits";
import { LogPage } from "./pages/log";
import { LoginPage } from "./pages/login";
import { NodePage, NodesPage } from "./pages/nodes";
import { OverviewPage } from "./pages/overview";
import { PoliciesPage } from "./pages/policies";
import { QueuePage } from "./pages/queue";
import { QueuesPage } from "./pages/queues";
import { SalvagePage, SalvagePiecePage } from "./pages/salvage";
import { ShovelsPage } from "./pages/shovels";
import { TopologyPage } from "./pages/topology";
import { UserPage, UsersPage } from "./pages/users";
import { VhostPage, VhostsPage } from "./pages/vhosts";
import { place } from "./router";
import { type Theme, theme, vhost } from "./state";

interface Entry {
  title: string;
  step: string;
  allowed: () => boolean;
}

const anyone = () => true;
const NAVIGATION: [string, Entry[]][] = [
  [
    "Messages",
    [
      { title: "Overview", step: "", allowed: anyone },
      { title: "Queues", step: "queues", allowed: anyone },
      { title: "Exchanges", step: "exchanges", allowed: anyone },
      { title: "Topology", step: "topology", allowed: anyone },
      { title: "Dead letters", step: "dead-letters", allowed: anyone },
      { title: "Shovels", step: "shovels", allowed: may.monitor },
    ],
  ],
  [
    "Clients",
    [
      { title: "Connections", step: "connections", allowed: anyone },
      { title: "Channels", step: "channels", allowed: anyone },
    ],
  ],
  [
    "Cluster",
    [
      { title: "Cluster", step: "cluster", allowed: may.monitor },
      { title: "Nodes", step: "nodes", allowed: may.monitor },
      { title: "Log", step: "log", allowed: may.monitor },
      { title: "Salvage", step: "salvage", allowed: may.administrate },
    ],
  ],
  [
    "Admin",
    [
      { title: "Policies", step: "policies", allowed: anyone },
      { title: "Operator policies", step: "operator-policies", allowed: anyone },
      { title: "Users", step: "users", allowed: may.administrate },
      { title: "Virtual hosts", step: "vhosts", allowed: anyone },
      { title: "Limits", step: "limits", allowed: anyone },
      { title: "Definitions", step: "definitions", allowed: may.makePolicies },
    ],
  ],
];

function page(): JSX.Element {
  const [first = "", second, third, fourth] = place.value.steps;
  if (first === "") return <OverviewPage />;
  if (first === "queues" && second !== undefined && third !== undefined) return <QueuePage key={`${second} ${third}`} vhost={second} name={third} tab={fourth ?? "overview"} />;
  if (first === "queues") return <QueuesPage />;
  if (first === "exchanges" && second !== undefined && third !== undefined) return <ExchangePage key={`${second} ${third}`} vhost={second} name={third} />;
  if (first === "exchanges") return <ExchangesPage />;
  if (first === "topology") return <TopologyPage />;
  if (first === "dead-letters") return <DeadLettersPage />;
  if (first === "shovels") return <ShovelsPage />;
  if (first === "connections") return second ? <ConnectionPage key={second} name={second} /> : <ConnectionsPage />;
  if (first === "channels") return second ? <ChannelPage key={second} name={second} /> : <ChannelsPage />;
  if (first === "cluster") return <ClusterPage tab={second ?? "timeline"} />;
  if (first === "nodes") return second ? <NodePage key={second} name={second} /> : <NodesPage />;
  if (first === "log") return <LogPage />;
  if (first === "salvage") return second && third ? <SalvagePiecePage key={`${second} ${third}`} node={second} file={third} /> : <SalvagePage />;
  if (first === "policies") return <PoliciesPage key="user" operator={false} />;
  if (first === "operator-policies") return <PoliciesPage key="operator" operator />;
  if (first === "users") return second ? <UserPage key={second} name={second} /> : <UsersPage />;
  if (first === "vhosts") return second ? <VhostPage key={second} name={second} /> : <VhostsPage />;
  if (first === "limits") return <LimitsPage />;
  if (first === "definitions") return <DefinitionsPage />;
  if (first === "keys") return <KeysPage />;
  return (
    <Empty title="There is no such page.">
      The address is wrong, or of another version. <a href="#/">To the overview</a>
    </Empty>
  );
}

function allowedHere(): boolean {
  const first = place.value.steps[0] ?? "";
  const entry = NAVIGATION.flatMap(([, entries]) => entries).find((each) => each.step === first);
  return entry ? entry.allowed() : true;
}

const THEMES: Record<Theme, [string, Theme]> = {
  system: ["◐", "light"],
  light: ["☀", "dark"],
  dark: ["☾", "system"],
};

function Top({ onMenu, isOpen }: { onMenu: () => void; isOpen: boolean }): JSX.Element {
  const [sign, next] = THEMES[theme.value];
  return (
    <header class="top">
      <button type="button" class="menu quiet" aria-label="Menu" aria-expanded={isOpen} onClick={onMenu}>
        ☰
      </button>
      <a class="brand" href="#/">
        <img src="./warren.svg" width="24" height="24" alt="" /> Warren
      </a>
      <span class="spring" />
      <VhostChoice all label="Virtual host that lists are of" value={vhost.value} onChange={(name) => (vhost.value = name)} />
      <button
        type="button"
        class="quiet"
        aria-pressed={paused.value}
        aria-label={paused.value ? "paused: go on with updates" : "live: pause updates"}
        title={paused.value ? "Updates are paused: go on" : "Updates every few seconds: pause"}
        onClick={() => (paused.value = !paused.value)}
      >
        <span aria-hidden="true">{paused.value ? "▶" : "❚❚"}</span>
        <span class="spare"> {paused.value ? "paused" : "live"}</span>
      </button>
      <button type="button" class="quiet" aria-label={`Colours: ${theme.value}. Change to ${next}.`} title={`Colours: ${theme.value}`} onClick={() => (theme.value = next)}>
        {sign}
      </button>
      <span class="who" title={session.value?.tags.join(", ")}>
        {session.value?.name}
      </span>
      <button type="button" class="quiet" onClick={logOut}>
        Log out
      </button>
    </header>
  );
}

export function App(): JSX.Element {
  const [isOpen, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const name = session.value?.name;
  const here = place.value.steps.join("/");
  useEffect(startKeys, []);
  useEffect(() => {
    if (name) refreshUser().catch(() => undefined);
  }, [name]);
  useEffect(() => {
    setOpen(false);
    const [first = "overview", ...rest] = place.value.steps;
    document.title = `${rest.at(-1) ?? first} · Warren`;
    scrollTo(0, 0);
  }, [here]);
  if (!name) {
    return (
      <>
        <LoginPage />
        <Dialogs />
      </>
    );
  }
  const first = place.value.steps[0] ?? "";
  return (
    <>
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the page
      </a>
      <Top isOpen={isOpen} onMenu={() => setOpen(!isOpen)} />
      <div class="frame">
        <nav class={`side ${isOpen ? "open" : ""}`} aria-label="Pages">
          {NAVIGATION.map(([group, entries]) => {
            const allowed = entries.filter((entry) => entry.allowed());
            return (
              allowed.length > 0 && (
                <div key={group}>
                  <h2>{group}</h2>
                  <ul>
                    {allowed.map((entry) => (
                      <li key={entry.step}>
                        <a href={`#/${entry.step}`} aria-current={entry.step === first ? "page" : undefined}>
                          {entry.title}
                        </a>
                      </li>
                    ))}
                  </ul>
                </div>
              )
            );
          })}
          <p class="side-foot">
            <a href="#/keys">Keys</a>
          </p>
        </nav>
        <main id="main" ref={main} tabIndex={-1}>
          {unreachable.value && (
            <div class="notice bad" role="alert">
              <strong>{unreachable.value}</strong>
              <span>What you see is what was last known. It is asked again every few seconds.</span>
            </div>
          )}
          {allowedHere() ? page() : <Empty title="Your tags do not open this page.">An administrator can give you more with warrenctl set_user_tags.</Empty>}
        </main>
      </div>
      <Dialogs />
    </>
  );
}

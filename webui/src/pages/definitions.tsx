import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, get, may, quote } from "../api";
import { summary, type Summary } from "../definitions";
import { count } from "../format";
import { ask, attempt } from "../parts/dialog";
import { Field, VhostChoice } from "../parts/forms";
import { PageHead, Panel, Same } from "../parts/small";

export function DefinitionsPage(): JSX.Element {
  const [where, setWhere] = useState(may.administrate() ? "" : "/");
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  const [found, setFound] = useState<Summary | null>(null);
  const [wrong, setWrong] = useState<string | null>(null);
  const path = where ? `definitions/${quote(where)}` : "definitions";

  async function download(): Promise<void> {
    await attempt(async () => {
      const definitions = await get<unknown>(path);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([JSON.stringify(definitions, null, 2)], { type: "application/json" }));
      link.download = `warren-definitions-${new Date().toISOString().slice(0, 10)}.json`;
      link.click();
      URL.revokeObjectURL(link.href);
    }, "Downloaded");
  }

  async function choose(file: File | undefined): Promise<void> {
    setFound(null);
    setWrong(null);
    if (!file) return;
    try {
      const content = await file.text();
      setFound(summary(content));
      setText(content);
      setName(file.name);
    } catch (error) {
      setWrong((error as Error).message);
    }
  }

  function upload(event: Event): void {
    event.preventDefault();
    if (!found) return;
    ask({
      title: `Import ${name}?`,
      body: (
        <>
          <p>
            Into {where ? <code>{where}</code> : "the whole cluster"}: {found.parts.map(([title, amount]) => `${count(amount)} ${title}`).join(", ")}.
          </p>
          <p>
            What is there and not in the file stays. <strong>What is in both is overwritten</strong>: users get the passwords of the file. Queues and exchanges that exist with other properties are refused.
          </p>
        </>
      ),
      verb: "Import",
      command: `warrenctl import_definitions ${name}`,
      run: () => act("POST", path, JSON.parse(text)),
      done: "The definitions are in force",
    });
  }

  return (
    <>
      <PageHead title="Definitions" sub="Users, virtual hosts, permissions, policies, queues, exchanges and bindings as one file; no messages. RabbitMQ's files work as they are." />
      <div class="two">
        <Panel title="Export">
          <div class="form">
            <Field label="Of">
              <VhostChoice value={where} onChange={setWhere} all={may.administrate()} />
            </Field>
            <button type="button" class="primary" onClick={() => void download()}>
              Download
            </button>
            <Same text="warrenctl export_definitions definitions.json" />
          </div>
        </Panel>
        {may.administrate() && (
          <Panel title="Import">
            <form class="form" onSubmit={upload}>
              <Field label="File" error={wrong}>
                <input type="file" accept=".json,application/json" onChange={(event) => void choose(event.currentTarget.files?.[0])} />
              </Field>
              {found && (
                <div class="full">
                  <p>
                    From {found.origin}: {found.parts.map(([title, amount]) => `${count(amount)} ${title}`).join(", ")}.
                  </p>
                </div>
              )}
              <button type="submit" class="primary" disabled={!found}>
                Import …
              </button>
            </form>
          </Panel>
        )}
      </div>
    </>
  );
}

// A cluster that was started to try things out: its nodes can be killed from here, to see what follows.

import type { JSX } from "preact";
import { useState } from "preact/hooks";

import { act, curlOf, may } from "./api";
import { plural, shortNode } from "./format";
import { ask } from "./parts/dialog";
import { Choice } from "./parts/forms";
import { Command, Panel } from "./parts/small";
import type { ClusterStatus } from "./types";

/** How a node is started again: a command, or a sentence where nobody has to. */
export function StartAgain({ text, node }: { text: string; node: string }): JSX.Element {
  return text.includes("{node}") ? (
    <p>
      Start {shortNode(node)} again: <Command text={text.replaceAll("{node}", shortNode(node))} />
    </p>
  ) : (
    <p>{text}</p>
  );
}

/** What will follow from the end of one node of so many. */
export function killWords(node: string, status: ClusterStatus): string[] {
  const left = status.nodes.filter((each) => each.running && each.name !== node).length;
  const hasMajority = left > status.nodes.length / 2;
  return [
    `The process of ${node} is ended at once, as by a crash or a power cut: nothing is written any more, and its clients lose their connections.`,
    hasMajority
      ? "Mirrored queues whose master is there get another one; queues whose only copy is there wait until it is back."
      : `Only ${plural(left, "node")} of ${status.nodes.length} would be left, which is no majority: no client is served until one is back.`,
    ...(node === status.node ? ["It is the node that shows this page, which then shows what was last known: open another node's page to see the rest."] : []),
  ];
}

function askKill(node: string, status: ClusterStatus): void {
  ask({
    title: `Kill ${node}?`,
    body: (
      <>
        {killWords(node, status).map((line) => (
          <p>{line}</p>
        ))}
        <StartAgain text={status.try_out!} node={node} />
      </>
    ),
    verb: `Kill ${shortNode(node)}`,
    typed: shortNode(node),
    command: status.try_out!.includes("{node}") ? status.try_out!.replace("start {node}", `kill ${shortNode(node)}`) : curlOf("POST", "warren/cluster/kill", { node }),
    run: () => act("POST", "warren/cluster/kill", { node }),
    done: `${node} is being killed: the timeline shows what follows`,
  });
}

/** Only where the nodes say that they are a try-out. */
export function TryOut({ status }: { status: ClusterStatus }): JSX.Element | null {
  const [chosen, setChosen] = useState("");
  if (!status.try_out || !may.administrate()) return null;
  const running = status.nodes.filter((node) => node.running);
  const down = status.nodes.filter((node) => !node.running);
  // Not this one first: its page would go with it.
  const first = running.find((node) => node.name !== status.node) ?? running[0];
  const node = running.find((each) => each.name === chosen) ?? first;
  return (
    <Panel title="Try a failure" class="try-out">
      <p class="dim">This cluster was started to try things out, so its nodes may be killed from here.</p>
      {node && (
        <div class="inline">
          <Choice label="Node to kill" value={node.name} onChange={setChosen} options={running.map((each) => [each.name, shortNode(each.name)])} />
          <button type="button" class="danger" onClick={() => askKill(node.name, status)}>
            Kill this node …
          </button>
        </div>
      )}
      {down.map((each) => (
        <StartAgain key={each.name} text={status.try_out!} node={each.name} />
      ))}
    </Panel>
  );
}

import { act } from "./api";
import { ask } from "./parts/dialog";

/** Masters of all queues are spread over the nodes, once somebody has said so. */
export function askRebalance(): void {
  ask({
    title: "Rebalance the masters of queues?",
    body: <p>Masters move to nodes that have fewer, where an in-sync mirror of theirs is. Each queue pauses for a moment; nothing is lost.</p>,
    verb: "Rebalance",
    isHarmless: true,
    command: "warrenctl rebalance all",
    run: () => act("POST", "rebalance/queues", {}),
    done: "Masters are being spread; the cluster's timeline shows each move",
  });
}

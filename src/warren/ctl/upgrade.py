"""Commands that scripts for RabbitMQ call around upgrades and repairs.

Some of them mend what cannot break here. They are there all the same: a script that calls them must
either go on, where nothing is left to do, or learn why not and what to do instead.
"""

from __future__ import annotations

import time

from warren.ctl.command import Command, Run
from warren.ctl.errors import SOFTWARE, TIMEOUT, UNAVAILABLE, CtlError, usage

LOOK_AGAIN_S = 0.5
#: As long as RabbitMQ's tool waits.
AWAIT_S = 70.0
_CRITICAL = "/health/checks/node-is-mirror-sync-critical"


def await_online_synchronized_mirror(run: Run) -> None:
    """Until this node may be stopped: every mirrored queue of it has a synchronised mirror."""
    name = run.node_name()
    run.banner(f"Will wait for a synchronised mirror of all queues with their master on {name} ...")
    until_s = time.monotonic() + float(run.options.get("timeout", AWAIT_S))
    while True:
        answer = run.client.call("GET", _CRITICAL)
        if answer.status == 200:
            run.say(f"Node {name} has no mirrored queue without a synchronised mirror elsewhere")
            return
        if time.monotonic() >= until_s:
            waiting = [row["readable_name"] for row in answer.value["queues"]]
            raise CtlError(TIMEOUT, "Error:\ntimed out while waiting, for:\n" + "\n".join(waiting))
        time.sleep(LOOK_AGAIN_S)


def is_booting(run: Run) -> None:
    name = run.node_name()
    run.banner(f"Asking node {name} for its boot status ...")
    if run.client.call("GET", "/health/checks/ready-to-serve-clients").status == 200:
        raise CtlError(UNAVAILABLE, f"Error:\nnode {name} is not booting: it is up")
    run.say(f"Node {name} is booting")


def force_boot(run: Run) -> None:
    raise CtlError(
        SOFTWARE,
        f"Error:\nnode {run.node_name()} starts by itself, in any order with the others, and "
        "serves as soon as most nodes of the cluster are there: nothing is to be forced. "
        "Nodes that will never come back are taken out with forget_cluster_node",
    )


def update_cluster_nodes(run: Run) -> None:
    run.banner(f"Will seed {run.node_name()} from {run.word(0)} on next start")
    run.say("Nothing to do: a node learns from all the others who is in the cluster")


def change_cluster_node_type(run: Run) -> None:
    kind = run.word(0)
    if kind not in {"disc", "disk", "ram"}:
        raise usage(f"the type of a node is disc or ram, not '{kind}'")
    name = run.node_name()
    run.banner(f"Turning {name} into a {kind} node")
    if kind == "ram":
        raise CtlError(SOFTWARE, "Error:\nall nodes keep their definitions on disk")
    run.say(f"Node {name} is a disc node already")


def rename_cluster_node(run: Run) -> None:
    raise CtlError(
        SOFTWARE,
        f"Error:\na node of the cluster of {run.node_name()} keeps its name: start one of the new "
        "name, have it join_cluster, wait until mirrors are synchronised, stop the old one and "
        "take it out with forget_cluster_node",
    )


def evaluate(run: Run) -> None:
    raise CtlError(SOFTWARE, f"Error:\nnode {run.node_name()} runs no code that is sent to it")


COMMANDS = (
    Command(
        "await_online_synchronized_mirror",
        "",
        "Waits until all mirrored queues of this node have a synchronised mirror elsewhere",
        await_online_synchronized_mirror,
    ),
    Command("is_booting", "", "Fails if the node is up", is_booting),
    Command("force_boot", "", "Says why no start has to be forced", force_boot),
    Command(
        "update_cluster_nodes",
        "<node>",
        "Says that nodes know each other's places",
        update_cluster_nodes,
    ),
    Command(
        "change_cluster_node_type",
        "<type>",
        "Fails for ram: all nodes are disc nodes",
        change_cluster_node_type,
    ),
    Command(
        "rename_cluster_node",
        "<old> <new> [more ...]",
        "Says how a node of another name takes a node's place",
        rename_cluster_node,
    ),
    Command("eval", "<expression>", "Fails: nodes run no code that is sent to them", evaluate),
)

"""Commands on the cluster: who is in it, who joins, who leaves, who is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from warren.ctl.command import Command, Run, number
from warren.ctl.errors import SOFTWARE, TIMEOUT, UNAVAILABLE, CtlError, usage
from warren.ctl.operate import listener_interface, listener_purpose, print_sections

#: How long `await_...` waits unless told otherwise, as rabbitmqctl does.
AWAIT_S = 300.0
#: Between two looks at a node that is waited for.
LOOK_AGAIN_S = 0.2
_ALARMS = {"memory": "Memory", "disk": "Free disk space"}
_MAINTENANCE = {False: "not under maintenance", True: "marked for maintenance"}
_STATUS = "/warren/cluster/status"
_DRAIN = "/warren/cluster/drain"


def cluster_status(run: Run) -> None:
    shown = run.client.get(_STATUS)
    run.banner(f"Cluster status of node {shown['node']} ...")
    if run.formatter == "json":
        import json

        run.say(json.dumps(_as_json(shown), separators=(",", ":")))
        return
    print_sections(run, _sections(shown))


def _names(nodes: list[dict[str, Any]], kind: str) -> list[str]:
    return [node["name"] for node in nodes if node["type"] == kind]


def _as_json(shown: dict[str, Any]) -> dict[str, Any]:
    """The keys that rabbitmqctl has, and `agreement`."""
    nodes: list[dict[str, Any]] = shown["nodes"]
    running = [node for node in nodes if node["running"]]
    return {
        "alarms": [
            {"scope": "cluster", "type": "resource_limit", "resource": alarm, "node": node["name"]}
            for node in nodes
            for alarm in node["alarms"]
        ],
        "cluster_name": shown["cluster_name"],
        "cpu_cores": {node["name"]: node["cpu_cores"] for node in running},
        "disk_nodes": _names(nodes, "disc"),
        "feature_flags": [],
        "listeners": {
            node["name"]: [
                {
                    "interface": listener_interface(row),
                    "node": row["node"],
                    "port": row["port"],
                    "protocol": row["protocol"],
                    "purpose": listener_purpose(row),
                }
                for row in node["listeners"]
            ]
            for node in running
        },
        **({"agreement": told} if (told := shown.get("agreement")) is not None else {}),
        "maintenance_status": {
            node["name"]: _MAINTENANCE[node["being_drained"]] for node in running
        },
        **({"forks": told} if (told := shown.get("forks")) else {}),
        "partitions": shown["partitions"],
        "ram_nodes": _names(nodes, "ram"),
        "running_nodes": [node["name"] for node in running],
        "versions": {
            node["name"]: {
                "erlang_version": node["runtime"],
                "rabbitmq_name": node["product"],
                "rabbitmq_version": node["version"],
            }
            for node in running
        },
    }


def _sections(shown: dict[str, Any]) -> dict[str, list[str]]:
    nodes: list[dict[str, Any]] = shown["nodes"]
    running = [node for node in nodes if node["running"]]
    cores = sum(node["cpu_cores"] for node in running)
    ram = _names(nodes, "ram")
    return {
        "Basics": [
            f"Cluster name: {shown['cluster_name']}",
            f"Total CPU cores available cluster-wide: {cores}",
        ],
        "Disk Nodes": _names(nodes, "disc"),
        # rabbitmqctl leaves this section out where it would be empty, and no other.
        **({"RAM Nodes": ram} if ram else {}),
        "Running Nodes": [node["name"] for node in running],
        "Versions": [
            f"{node['name']}: {node['product']} {node['version']} on Python {node['runtime']}"
            for node in running
        ],
        "CPU Cores": [
            f"Node: {node['name']}, available CPU cores: {node['cpu_cores']}" for node in running
        ],
        "Maintenance status": [
            f"Node: {node['name']}, status: {_MAINTENANCE[node['being_drained']]}"
            for node in running
        ],
        **({"Agreement": agreement} if (agreement := _agreement(shown)) else {}),
        "Alarms": [
            f"{_ALARMS.get(alarm, alarm)} alarm on node {node['name']}"
            for node in nodes
            for alarm in node["alarms"]
        ],
        "Network Partitions": [
            f"Node {node} cannot communicate with {', '.join(others)}"
            for node, others in shown["partitions"].items()
        ],
        **({"Forks": forks} if (forks := _forks(shown)) else {}),
        "Listeners": [
            f"Node: {row['node']}, interface: {listener_interface(row)}, port: {row['port']}, "
            f"protocol: {row['protocol']}, purpose: {listener_purpose(row)}"
            for node in running
            for row in node["listeners"]
        ],
        "Feature flags": [],
    }


def _forks(shown: dict[str, Any]) -> list[str]:
    """Of mirrored queues, with autoheal: what the node serves by itself, or has served."""
    return [
        f"Node: {row['node']}, queue {row['queue']} in vhost {row['vhost']}: {row['state']}, "
        f"{row['messages']} messages"
        + (f", {row['unreadable']} cannot be read" if row.get("unreadable") else "")
        + (f", waits: {row['waits_for']}" if row.get("waits_for") else "")
        for row in shown.get("forks", [])
    ]


def _agreement(shown: dict[str, Any]) -> list[str]:
    """Who leads the agreement on metadata; nothing for a node by itself."""
    told = shown.get("agreement")
    if told is None:
        return []
    lines = [
        f"Leader: {told['leader'] or 'nobody'}, term: {told['term']}",
        f"Voters: {', '.join(told['voters'])}",
    ]
    if told["learners"]:
        lines.append(f"Joining: {', '.join(told['learners'])}")
    lines.append(f"Applied entries: {told['applied']}")
    if not told["has_majority"]:
        lines.append(
            f"{shown['node']} has no part in a majority: start the other voters, or mend the "
            "network. Only if they are lost for good: forget_cluster_node --offline"
        )
    return lines


def join_cluster(run: Run) -> None:
    if "ram" in run.options and "disc" in run.options:
        raise usage("a node is of one type: --disc or --ram")
    name, target = run.node_name(), run.word(0)
    run.banner(f"Clustering node {name} with {target}")
    kind = "ram" if "ram" in run.options else "disc"
    answer = run.client.want("POST", "/warren/cluster/join", {"node": target, "type": kind})
    if answer["already_member"]:
        run.say("The node is already a member of this cluster")


def forget_cluster_node(run: Run) -> None:
    run.banner(f"Removing node {run.word(0)} from the cluster")
    asked = {"node": run.word(0), "offline": "offline" in run.options}
    if "force" in run.options:
        asked["force"] = True
    run.client.want("POST", "/warren/cluster/forget", asked)
    if "offline" in run.options:
        run.say(
            f"{run.word(0)} is taken out by the next start of {run.node_name()}: say it of all "
            "nodes that are lost, then: warrenctl start_app"
        )


def reset(run: Run) -> None:
    run.banner(f"Resetting node {run.node_name()} ...")
    run.client.want("POST", "/warren/cluster/reset", {"force": False})


def force_reset(run: Run) -> None:
    run.banner(f"Forcefully resetting node {run.node_name()} ...")
    run.client.want("POST", "/warren/cluster/reset", {"force": True})


def stop_app(run: Run) -> None:
    run.banner(f"Stopping the application on node {run.node_name()} ...")
    run.client.want("POST", "/warren/cluster/stop_app", {})


def start_app(run: Run) -> None:
    run.banner(f"Starting node {run.node_name()} ...")
    run.client.want("POST", "/warren/cluster/start_app", {})

    def met() -> bool:
        return bool(run.client.get(_STATUS)["app_running"])

    # A node of a cluster begins a new life, and is back when the others have let it in.
    _until(run, met, f"timed out while waiting: {run.client.place} does not serve clients yet")


def _until(run: Run, met: Callable[[], bool], otherwise: str) -> None:
    """Look again and again until it is met; a node that does not answer yet may still do so."""
    until_s = time.monotonic() + float(run.options.get("timeout", AWAIT_S))
    while True:
        try:
            if met():
                return
        except CtlError as error:
            if error.status != UNAVAILABLE:
                raise
        if time.monotonic() >= until_s:
            raise CtlError(TIMEOUT, f"Error:\n{otherwise}")
        time.sleep(LOOK_AGAIN_S)


def drain(run: Run) -> None:
    name = run.node_name()
    run.banner(f"Will put node {name} into maintenance mode: its masters move, its clients go ...")
    run.client.want("POST", _DRAIN, {})
    shown = _await_drained(run)
    if shown["state"] != "drained":
        raise CtlError(SOFTWARE, f"Error:\n{name} was revived meanwhile")
    run.say(f"Node {name} is drained: it has no clients, and gets no queues until: revive")
    if shown["masters_left"]:
        names = [f"'{row['name']}' in vhost '{row['vhost']}'" for row in shown["queues_left"]]
        run.say(
            f"{shown['masters_left']} masters stay, since no other node in service has their "
            "queues in full (warrenctl sync_queue, or revive one that has, and they follow):"
        )
        for line in names:
            run.say(line)


def _await_drained(run: Run) -> dict[str, Any]:
    """Until it is drained, or not to be any more; how it is then. Raises CtlError."""
    from warren.ctl.terminal import Progress

    end_s = time.monotonic() + float(run.options.get("timeout", AWAIT_S))
    with Progress("masters moved", 0, run.is_quiet) as progress:
        while (shown := run.client.get(_DRAIN))["state"] == "draining":
            progress.total = shown["masters"]
            moved = shown["masters"] - shown["masters_left"]
            if time.monotonic() >= end_s:
                raise CtlError(
                    TIMEOUT,
                    f"Error:\n{moved} of {shown['masters']} masters have moved so far; it goes on: "
                    "warrenctl cluster_status",
                )
            progress.show(moved)
            time.sleep(LOOK_AGAIN_S)
    result: dict[str, Any] = shown
    return result


def revive(run: Run) -> None:
    name = run.node_name()
    run.banner(f"Will put node {name} back into regular operating mode ...")
    run.client.want("POST", "/warren/cluster/revive", {})

    def met() -> bool:
        return bool(run.client.get(_DRAIN)["state"] == "in service")

    _until(run, met, f"timed out while waiting: {name} is not back in service yet")


def await_startup(run: Run) -> None:
    def met() -> bool:
        return bool(run.client.get(_STATUS)["app_running"])

    run.banner(f"Waiting for the node at {run.client.place} to start ...")
    _until(run, met, "timed out while waiting: the node did not start")


def await_online_nodes(run: Run) -> None:
    wanted = number(run.word(0), "count")
    if wanted < 1:
        raise usage(f"count must be at least 1, not {wanted}")
    run.banner(f"Will wait for at least {wanted} nodes to join the cluster ...")

    def met() -> bool:
        return len(run.client.get("/warren/cluster/online")["nodes"]) >= wanted

    _until(run, met, "timed out while waiting. Not enough nodes joined the cluster.")


def set_cluster_name(run: Run) -> None:
    run.banner(f"Setting cluster name to {run.word(0)} ...")
    run.client.want("PUT", "/cluster-name", {"name": run.word(0)})


def cluster_name(run: Run) -> None:
    run.say(run.client.get("/cluster-name")["name"])


COMMANDS = (
    Command("cluster_status", "", "Displays the nodes of the cluster", cluster_status),
    Command(
        "join_cluster",
        "<node>",
        "Makes this node, which is stopped and forgets all, one of another node's cluster",
        join_cluster,
        {"disc": False, "ram": False},
    ),
    Command(
        "forget_cluster_node",
        "<node>",
        "Takes a node that is stopped out of the cluster",
        forget_cluster_node,
        {"offline": False, "force": False},
        notes=(
            (
                "--offline",
                "on a survivor that is stopped (stop_app) and can agree with nobody, since",
            ),
            ("", "half of the nodes or more are lost for good; start_app then goes on alone"),
            (
                "--force",
                "also if forks of it may not be merged (autoheal): gives up what they have",
            ),
        ),
    ),
    Command("reset", "", "Makes a stopped node leave its cluster and forget everything", reset),
    Command(
        "force_reset",
        "",
        "Makes a stopped node forget everything, whatever its cluster says",
        force_reset,
    ),
    Command("stop_app", "", "Stops serving clients; the process goes on", stop_app),
    Command("start_app", "", "Serves clients again", start_app),
    Command("drain", "", "Takes the node out of service: masters move, clients go", drain),
    Command("revive", "", "Puts a drained node into service again", revive),
    Command("await_startup", "", "Waits for the node to start", await_startup),
    Command(
        "await_online_nodes", "<count>", "Waits for nodes to join the cluster", await_online_nodes
    ),
    Command("set_cluster_name", "<name>", "Sets the cluster name", set_cluster_name),
    Command("cluster_name", "", "Displays the cluster name", cluster_name),
)

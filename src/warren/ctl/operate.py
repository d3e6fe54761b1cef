"""Commands on the node itself: status, health checks, connections, queues, stopping."""

from __future__ import annotations

import time
from typing import Any

import warren
from warren.ctl.command import Command, Run, number, q
from warren.ctl.errors import BAD_DATA, TIMEOUT, UNAVAILABLE, CtlError
from warren.ctl.mirrors import queue_place

#: How long the process of a node that stops may take to end, and how often that is looked at.
STOP_S, LOOK_S = 60, 0.05
_PURPOSES = {
    "amqp": "AMQP 0-9-1",
    "clustering": "inter-node communication",
    "amqp/ssl": "AMQP 0-9-1 over TLS",
    "http": "HTTP API",
    "https": "HTTP API over TLS",
    "http/prometheus": "Prometheus exporter API over HTTP",
    "https/prometheus": "Prometheus exporter API over HTTPS",
}


def print_sections(run: Run, sections: dict[str, list[str]]) -> None:
    """As rabbitmqctl prints them, one after the other."""
    for title, lines in sections.items():
        run.say(f"{title}\n\n" + "\n".join(lines or ["(none)"]) + "\n")


def listener_interface(row: dict[str, Any]) -> str:
    """Where a listener listens, as rabbitmqctl writes it."""
    return f"[{row['ip_address']}]" if ":" in row["ip_address"] else str(row["ip_address"])


def listener_purpose(row: dict[str, Any]) -> str:
    """What a listener is for, in a few words."""
    return _PURPOSES.get(row["protocol"], str(row["protocol"]))


def own_listeners(overview: dict[str, Any]) -> list[dict[str, Any]]:
    """Those of the node spoken to; an overview has those of all nodes."""
    return [row for row in overview["listeners"] if row["node"] == overview["node"]]


def _listener_line(row: dict[str, Any]) -> str:
    return (
        f"Interface: {listener_interface(row)}, port: {row['port']}, "
        f"protocol: {row['protocol']}, purpose: {listener_purpose(row)}"
    )


def own_node(run: Run) -> dict[str, Any]:
    """The node spoken to, as the API shows it."""
    node: dict[str, Any] = run.client.get(f"/nodes/{q(run.node_name())}")
    return node


def _alarms(node: dict[str, Any]) -> list[str]:
    names = {"mem_alarm": "memory", "disk_free_alarm": "disk"}
    return [name for key, name in names.items() if node[key]]


def status(run: Run) -> None:
    overview, node = run.client.get("/overview"), own_node(run)
    run.banner(f"Status of node {node['name']} ...")
    if run.formatter == "json":
        import json

        run.say(
            json.dumps(
                {
                    "node": node["name"],
                    "pid": int(node["os_pid"]),
                    "uptime": node["uptime"] // 1000,
                    "rabbitmq_version": overview["rabbitmq_version"],
                    "warren_version": overview["warren_version"],
                    "is_under_maintenance": bool(node["being_drained"]),
                    "alarms": _alarms(node),
                    "listeners": own_listeners(overview),
                    "totals": overview["object_totals"],
                    "disk_free": node["disk_free"],
                    "disk_free_limit": node["disk_free_limit"],
                    "memory": {"total": node["mem_used"], "limit": node["mem_limit"]},
                    "file_descriptors": {
                        "total_used": node["fd_used"],
                        "total_limit": node["fd_total"],
                    },
                }
            )
        )
        return
    totals = overview["object_totals"]
    print_sections(
        run,
        {
            "Runtime": [
                f"OS PID: {node['os_pid']}",
                f"Uptime (seconds): {node['uptime'] // 1000}",
                f"Is under maintenance?: {str(bool(node['being_drained'])).lower()}",
                f"Warren version: {overview['warren_version']}",
                f"RabbitMQ version: {overview['rabbitmq_version']}",
                f"Node name: {node['name']}",
                f"Runtime: {overview['erlang_full_version']}",
            ],
            "Alarms": _alarms(node),
            "Memory": [
                f"Total memory used: {node['mem_used'] / 1e9:.4f} gb",
                f"Memory high watermark: {node['mem_limit'] / 1e9:.4f} gb",
            ],
            "File Descriptors": [f"Total: {node['fd_used']}, limit: {node['fd_total']}"],
            "Free Disk Space": [
                f"Low free disk space watermark: {node['disk_free_limit'] / 1e9:.4f} gb",
                f"Free disk space: {node['disk_free'] / 1e9:.4f} gb",
            ],
            "Totals": [
                f"Connection count: {totals['connections']}",
                f"Queue count: {totals['queues']}",
            ],
            "Listeners": [_listener_line(row) for row in own_listeners(overview)],
        },
    )


def ping(run: Run) -> None:
    name = run.node_name()
    run.banner(f"Will ping {name}.")
    run.say("Ping succeeded")


def version(run: Run) -> None:
    run.say(warren.__version__)


def server_version(run: Run) -> None:
    overview = run.client.get("/overview?columns=node,rabbitmq_version,warren_version")
    run.banner(f"Asking node {overview['node']} for its version ...")
    run.say(overview["warren_version"])


def listeners(run: Run) -> None:
    overview = run.client.get("/overview?columns=node,listeners")
    run.banner(f"Asking node {overview['node']} to report its protocol listeners ...")
    if run.formatter == "table":
        for row in own_listeners(overview):
            run.say(_listener_line(row))
        return
    run.table(own_listeners(overview), ("node", "protocol", "ip_address", "port"))


def environment(run: Run) -> None:
    import json

    run.banner(f"Application environment of node {run.node_name()} ...")
    run.say(json.dumps(run.client.get("/config/effective"), indent=2))


def memory_breakdown(run: Run) -> None:
    name = run.node_name()
    run.banner(f"Reporting memory breakdown on node {name}...")
    parts = run.client.get(f"/nodes/{q(name)}/memory")["memory"]
    total = parts.pop("total")["rss"] or 1
    parts.pop("strategy")
    for part, size in sorted(parts.items(), key=lambda pair: -pair[1]):
        if size:
            run.say(f"{part}: {size / 1e9:.4f} gb ({size * 100 / total:.2f}%)")


def alarms(run: Run) -> None:
    node = own_node(run)
    run.banner(f"Asking node {node['name']} to report any known resource alarms ...")
    found = _alarms(node)
    if not found:
        run.say(f"Node {node['name']} reported no alarms, local or clusterwide")
    for name in found:
        run.say(f"{name} alarm on node {node['name']}")


def check_alarms(run: Run) -> None:
    node = own_node(run)
    run.banner(f"Asking node {node['name']} to report any local resource alarms ...")
    found = _alarms(node)
    if found:
        raise CtlError(UNAVAILABLE, f"Node {node['name']} reported alarms: {', '.join(found)}")
    run.say(f"Node {node['name']} reported no local alarms")


def check_running(run: Run) -> None:
    name = run.node_name()
    run.banner(f"Checking if Warren is running on node {name} ...")
    run.say(f"Warren on node {name} is fully booted and running")


def check_port_listener(run: Run) -> None:
    port, name = number(run.word(0), "port"), run.node_name()
    run.banner(f"Asking node {name} if there's an active listener on port {port} ...")
    answer = run.client.call("GET", f"/health/checks/port-listener/{port}")
    if answer.status != 200:
        ports = ", ".join(str(known) for known in answer.value["ports"])
        raise CtlError(
            UNAVAILABLE,
            f"No listener for port {port} is active on node {name}. "
            f"Found listeners that use the following ports: {ports}",
        )
    run.say(f"A listener for port {port} is running on node {name}.")


def check_protocol_listener(run: Run) -> None:
    protocol, name = run.word(0), run.node_name()
    run.banner(f"Asking node {name} if there's an active listener for protocol {protocol} ...")
    answer = run.client.call("GET", f"/health/checks/protocol-listener/{q(protocol)}")
    if answer.status != 200:
        known = ", ".join(answer.value["protocols"])
        raise CtlError(
            UNAVAILABLE,
            f"No listener for protocol {protocol} is active on node {name}. "
            f"Found listeners for the following protocols: {known}",
        )
    run.say(f"A listener for protocol {protocol} is running on node {name}.")


def check_mirrors(run: Run) -> None:
    name = run.node_name()
    run.banner(
        f"Checking if node {name} is critical for data safety of any classic mirrored queues ..."
    )
    answer = run.client.call("GET", "/health/checks/node-is-mirror-sync-critical")
    if answer.status != 200:
        names = [row["readable_name"] for row in answer.value["queues"]]
        raise CtlError(
            UNAVAILABLE,
            f"Error:\nNode {name} is the only one that has these queues in full:\n"
            + "\n".join(names),
        )
    run.say(f"Node {name} reported no classic mirrored queues without online synchronised mirrors")


def stop(run: Run) -> None:
    """With a file that has the node's process id, until that process has ended."""
    pid = _pid_in(run.word(0)) if run.words else 0
    _stop(run, pid)


def shutdown(run: Run) -> None:
    """Until the node's process has ended, if it is on this machine."""
    waits = "no-wait" not in run.options and run.client.is_local
    name = run.node_name()
    pid = int(run.client.get(f"/nodes/{q(name)}?columns=os_pid")["os_pid"]) if waits else 0
    _stop(run, pid)


def _stop(run: Run, pid: int) -> None:
    name = run.node_name()
    run.banner(f"Stopping and halting node {name} ...")
    run.client.want("POST", f"/nodes/{q(name)}/stop", {})
    timeout_s = number(run.options["timeout"], "timeout") if "timeout" in run.options else STOP_S
    until_s = time.monotonic() + timeout_s
    while pid and _is_running(pid):
        if time.monotonic() > until_s:
            raise CtlError(
                TIMEOUT, f"Error:\nnode {name} stops, but its process {pid} has not ended"
            )
        time.sleep(LOOK_S)


def _pid_in(path: str) -> int:
    """Raises CtlError."""
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError) as error:
        raise CtlError(BAD_DATA, f"Error:\nno process id in {path}: {error}") from error


def _is_running(pid: int) -> bool:
    """Whether a process is there, and not only its exit status."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def close_connection(run: Run) -> None:
    name = run.word(0).removeprefix("<").removesuffix(">")
    reason = " ".join(run.words[1:]) or "Closed via warrenctl"
    run.banner(f"Closing connection {run.word(0)}, reason: {reason} ...")
    run.client.want("DELETE", f"/connections/{q(name)}", None, {"X-Reason": reason})


def close_all_connections(run: Run) -> None:
    reason = " ".join(run.words) or "Closed via warrenctl"
    where = f"/vhosts/{run.vhost_path}/connections" if "vhost" in run.options else "/connections"
    found = run.client.get(f"{where}?columns=name")
    run.banner(f"Closing {len(found)} connections, reason: {reason} ...")
    for row in found:
        run.client.call("DELETE", f"/connections/{q(row['name'])}", None, {"X-Reason": reason})


def close_all_user_connections(run: Run) -> None:
    reason = " ".join(run.words[1:]) or "Closed via warrenctl"
    run.banner(f"Closing connections of user {run.word(0)}, reason: {reason} ...")
    run.client.want("DELETE", f"/connections/username/{q(run.word(0))}", None, {"X-Reason": reason})


def delete_queue(run: Run) -> None:
    run.banner(f"Deleting queue '{run.word(0)}' on vhost '{run.vhost}' ...")
    place = queue_place(run)
    asked = [f"{name}=true" for name in ("if-empty", "if-unused") if name in run.options]
    found = run.client.get(f"{place}?columns=messages_ready")["messages_ready"]
    run.client.want("DELETE", f"{place}?{'&'.join(asked)}")
    run.say(f"Queue was successfully deleted with {found} ready messages")


def purge_queue(run: Run) -> None:
    run.banner(f"Purging queue '{run.word(0)}' in vhost '{run.vhost}' ...")
    run.client.want("DELETE", f"{queue_place(run)}/contents")


def pause_queue(run: Run) -> None:
    run.banner(f"Pausing the consumers of queue '{run.word(0)}' in vhost '{run.vhost}' ...")
    run.client.want("PUT", f"{queue_place(run)}/pause")


def resume_queue(run: Run) -> None:
    run.banner(f"Resuming the consumers of queue '{run.word(0)}' in vhost '{run.vhost}' ...")
    run.client.want("PUT", f"{queue_place(run)}/resume")


COMMANDS = (
    Command("status", "", "Displays the status of a node", status),
    Command("ping", "", "Checks that the node answers", ping),
    Command("version", "", "Displays the version of this tool", version),
    Command("server_version", "", "Displays the version of the node", server_version),
    Command("listeners", "", "Lists the addresses the node listens on", listeners),
    Command("environment", "", "Displays the configuration in force, without secrets", environment),
    Command("memory_breakdown", "", "Shows where the memory goes", memory_breakdown),
    Command("alarms", "", "Lists resource alarms", alarms),
    Command("check_alarms", "", "Fails if there is an alarm", check_alarms),
    Command("check_local_alarms", "", "Fails if this node has an alarm", check_alarms),
    Command("check_running", "", "Fails if the node is not up", check_running),
    Command("is_running", "", "Fails if the node is not up", check_running),
    Command(
        "check_port_listener", "<port>", "Fails if nobody listens on a port", check_port_listener
    ),
    Command(
        "check_protocol_listener",
        "<protocol>",
        "Fails if nobody listens for a protocol",
        check_protocol_listener,
    ),
    Command(
        "check_if_node_is_mirror_sync_critical",
        "",
        "Fails if stopping this node would lose messages of mirrored queues",
        check_mirrors,
    ),
    Command("stop", "[pidfile]", "Stops the node; with a file, until its process has ended", stop),
    Command(
        "shutdown",
        "",
        "Stops the node, and waits until its process has ended if it is on this machine",
        shutdown,
        {"wait": False, "no-wait": False},
    ),
    Command("close_connection", "<name> [reason ...]", "Closes a connection", close_connection),
    Command(
        "close_all_connections",
        "[reason ...]",
        "Closes all connections, or those of a vhost",
        close_all_connections,
    ),
    Command(
        "close_all_user_connections",
        "<username> [reason ...]",
        "Closes all connections of a user",
        close_all_user_connections,
    ),
    Command(
        "delete_queue",
        "<queue>",
        "Deletes a queue",
        delete_queue,
        {"if-empty": False, "if-unused": False},
    ),
    Command("purge_queue", "<queue>", "Removes all ready messages of a queue", purge_queue),
    Command(
        "pause_queue",
        "<queue>",
        "Delivers nothing to the consumers of a queue until it is resumed",
        pause_queue,
    ),
    Command("resume_queue", "<queue>", "Lets the consumers of a paused queue go on", resume_queue),
)

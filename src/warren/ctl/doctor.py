"""`warrenctl doctor`: what is wrong, or soon will be, each with the way to put it right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from warren.ctl.command import Command, Run, q
from warren.ctl.errors import UNAVAILABLE, CtlError
from warren.ctl.operate import own_node

#: Fewer descriptors than this are used up by a few thousand clients.
FILES_WISHED = 65_536
#: From this part of a limit on it is worth a word.
NEAR = 0.8
CLOCK_OFF_S = 5.0
LOOPBACK = ("127.0.0.1", "::1")
#: A queue this long that nobody consumes from has been forgotten, more often than not.
FORGOTTEN_MESSAGES = 100_000

#: How long a port may take to let us in.
CONNECT_S = 3
#: Queues looked at with one request.
ROWS_AT_A_TIME = 500

Finding = tuple[str, str]


def doctor(run: Run) -> None:
    began_s = time.time()
    overview, node = run.client.get("/overview"), own_node(run)
    run.banner(f"Examining node {node['name']} ...")
    findings = [
        *_resources(node),
        *_ports(run, overview),
        *_cluster(run),
        *_clock(run, began_s),
        *_certificates(run),
        *_users(run, overview),
        *_queues(run),
        *_mirrors(run),
        *_shovels(run),
    ]
    if run.formatter == "json":
        run.table([{"problem": what, "fix": fix} for what, fix in findings], ("problem", "fix"))
    else:
        for what, fix in findings:
            run.say(f"! {what}\n  fix: {fix}")
    if findings:
        raise CtlError(UNAVAILABLE, f"{len(findings)} thing{'s' * (len(findings) > 1)} to look at")
    if run.formatter != "json":
        run.say("Nothing to find fault with.")


def _resources(node: dict[str, Any]) -> Iterator[Finding]:
    if node["mem_alarm"]:
        yield (
            "memory is short: publishers are blocked",
            "consume or purge what has piled up, or raise vm_memory_high_watermark.relative",
        )
    elif node["mem_limit"] and node["mem_used"] > NEAR * node["mem_limit"]:
        yield (
            f"{node['mem_used'] * 100 // node['mem_limit']} % of the memory mark is used",
            "consume what has piled up; at 100 % publishers are blocked",
        )
    if node["disk_free_alarm"] or node["disk_free"] < node["disk_free_limit"]:
        yield (
            f"{node['disk_free'] // 1_000_000} MB of disk are free, fewer than disk_free_limit",
            "make room on the disk",
        )
    if node["fd_total"] < FILES_WISHED:
        yield (
            f"the node may open {node['fd_total']} files and sockets",
            f"raise the limit: ulimit -n {FILES_WISHED}, or LimitNOFILE={FILES_WISHED} for systemd",
        )
    if node["fd_used"] > NEAR * node["fd_total"]:
        yield (
            f"{node['fd_used']} of {node['fd_total']} files and sockets are in use",
            "close idle connections, or raise the limit",
        )


def _ports(run: Run, overview: dict[str, Any]) -> Iterator[Finding]:
    """Every listener lets this machine in, and there is one for clients."""
    import socket

    listeners = overview["listeners"]
    if not any(row["protocol"].startswith("amqp") for row in listeners):
        yield (
            "the node has no listener for clients",
            "set listeners.tcp.default, or start the application: warrenctl start_app",
        )
    for row in listeners:
        if row.get("node", overview["node"]) != overview["node"]:
            continue
        host = run.client.host if row["ip_address"] in {"::", "0.0.0.0"} else row["ip_address"]
        try:
            socket.create_connection((host, row["port"]), CONNECT_S).close()
        except OSError as error:
            yield (
                f"port {row['port']} ({row['protocol']}) of {host} cannot be connected to: "
                f"{error.strerror or error}",
                "let it through the firewall, or bind it to an address that can be reached",
            )


def _cluster(run: Run) -> Iterator[Finding]:
    shown = run.client.get("/warren/cluster/status")
    for node in shown["nodes"]:
        if not node["running"]:
            yield (
                f"node {node['name']} does not run",
                f"start it, or take it out: warrenctl forget_cluster_node {node['name']}",
            )
        for alarm in node["alarms"]:
            if node["name"] != shown["node"]:
                yield (
                    f"node {node['name']} is short of {alarm}: publishers are blocked everywhere",
                    f"see warrenctl -n {node['name']} doctor",
                )
    for node, others in shown["partitions"].items():
        yield (
            f"node {node} cannot communicate with {', '.join(others)}",
            "mend the network; what happens then is decided by cluster_partition_handling",
        )


def _certificates(run: Run) -> Iterator[Finding]:
    answer = run.client.call("GET", "/health/checks/certificate-expiration/4/weeks")
    for row in answer.value.get("expired", ()) if answer.status != 200 else ():
        yield (
            f"the certificate {row['certfile']} ends in {row['days_left']:.0f} days",
            "renew it; listeners read it when the node is started again",
        )


def _clock(run: Run, began_s: float) -> Iterator[Finding]:
    """Every answer bears the node's time, in whole seconds."""
    from email.utils import parsedate_to_datetime

    head = run.client.call("GET", "/whoami").head
    dates = [line[5:] for line in head.split("\r\n") if line.lower().startswith("date:")]
    if not dates:
        return
    told_s = parsedate_to_datetime(dates[0].strip()).timestamp()
    off_s = max(began_s - 1 - told_s, told_s - time.time())
    if off_s > CLOCK_OFF_S:
        yield (
            f"the clocks of the node and of this machine are {off_s:.0f} s apart",
            "keep both right with NTP (systemd-timesyncd, chrony)",
        )


def _users(run: Run, overview: dict[str, Any]) -> Iterator[Finding]:
    is_open = any(
        row["ip_address"] not in LOOPBACK
        for row in overview["listeners"]
        if "prometheus" not in row["protocol"]
    )
    for user in run.client.get("/users"):
        name = user["name"]
        if name == "guest" and not is_open:
            continue
        for guess in {name, "guest", "password"}:
            place = f"/users/{q(name)}/authenticate"
            if run.client.call("POST", place, {"password": guess}).status == 200:
                yield (
                    f"the password of user '{name}' is one that everybody would try first",
                    f"warrenctl change_password {name}, or warrenctl delete_user {name}",
                )
                break


def _queues(run: Run) -> Iterator[Finding]:
    wanted = "name,vhost,messages_ready,consumers,paused,paused_by"
    path = f"/queues?sort=messages_ready&sort_reverse=true&page=1&page_size=20&columns={wanted}"
    for row in run.client.get(path)["items"]:
        if row["messages_ready"] < FORGOTTEN_MESSAGES:
            continue
        name = f"queue '{row['name']}' in vhost '{row['vhost']}'"
        if row.get("paused"):
            yield (
                f"{name} holds {row['messages_ready']} messages and was paused by "
                f"'{row['paused_by']}'",
                f"warrenctl -p {row['vhost']} resume_queue {row['name']}",
            )
        elif not row["consumers"]:
            yield (
                f"{name} holds {row['messages_ready']} messages and has no consumer",
                "start its consumer, limit it with a max-length policy, or purge it",
            )


def _mirrors(run: Run) -> Iterator[Finding]:
    wanted = "name,vhost,node,damage,slave_nodes,synchronised_slave_nodes,messages,arguments"
    is_alone = len(run.client.get("/nodes?columns=name")) < 2
    page = 1
    while True:
        path = f"/queues?page={page}&page_size={ROWS_AT_A_TIME}&columns={wanted}"
        answer = run.client.get(path)
        for row in answer["items"]:
            name = f"queue '{row['name']}' in vhost '{row['vhost']}'"
            if row.get("damage"):
                yield (
                    f"{name} is damaged: {row['damage']}",
                    "what could be saved is in the data directory; publish the rest again",
                )
            declared = row.get("arguments", {}).get("x-queue-type")
            if declared == "quorum" and not row.get("slave_nodes") and not is_alone:
                yield (
                    f"{name} was declared as a quorum queue, which is an ordinary one here, and "
                    "has no mirrors: it is on one node",
                    f"a policy mirrors it: warrenctl -p {row['vhost']} set_policy ha-quorum "
                    f"'^{row['name']}$' "
                    """'{"ha-mode": "exactly", "ha-params": 3, "ha-sync-mode": "automatic"}'""",
                )
            lacking = set(row.get("slave_nodes") or ()) - set(
                row.get("synchronised_slave_nodes") or ()
            )
            if lacking:
                yield (
                    f"{name} has mirrors that are not synchronised: {', '.join(sorted(lacking))}",
                    f"warrenctl -p {row['vhost']} sync_queue {row['name']}, or a policy with "
                    '"ha-sync-mode": "automatic"',
                )
        if page >= answer["page_count"]:
            return
        page += 1


def _shovels(run: Run) -> Iterator[Finding]:
    for row in run.client.get("/shovels"):
        if row["state"] == "terminated" and row.get("remaining") != 0:
            yield (
                f"shovel '{row['name']}' in vhost '{row['vhost']}' does not run: {row['reason']}",
                "see that both brokers can be reached and let its users in, then warrenctl "
                f"restart_shovel {row['name']}",
            )


COMMANDS = (
    Command("doctor", "", "Looks for what is wrong or soon will be; fails if it finds any", doctor),
)

"""Commands that change a running node, or tell all of it: limits, log, report."""

from __future__ import annotations

import time
from typing import Any

from warren.ctl.command import Command, Run, number, q
from warren.ctl.errors import BAD_DATA, UNAVAILABLE, CtlError, usage

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "none")
LOOK_AGAIN_S = 0.5
#: States of queues that answer.
WELL = {"running", "paused", "flow", "syncing", "idle"}
#: What `report` is made of: the title and the command.
_REPORT = (
    ("status", ()),
    ("cluster_status", ()),
    ("environment", ()),
    ("listeners", ()),
    ("memory_breakdown", ()),
    ("list_users", ()),
    ("list_vhosts", ("name", "tracing")),
    ("list_permissions", ()),
    ("list_policies", ()),
    ("list_connections", ("user", "peer_host", "peer_port", "state", "channels")),
    ("list_channels", ()),
    ("list_queues", ("name", "messages", "consumers", "state", "policy", "memory")),
    ("list_exchanges", ()),
    ("list_consumers", ()),
    ("shovel_status", ()),
)


def _node_place(run: Run, what: str) -> str:
    return f"/warren/nodes/{q(run.node_name())}/{what}"


def set_memory_mark(run: Run) -> None:
    words = run.words
    if words[0] == "absolute":
        if len(words) != 2:
            raise usage("not enough arguments: absolute <bytes>, as in absolute 2GB")
        limit: dict[str, Any] = {"absolute": words[1]}
        shown = f"{words[1]} bytes"
    else:
        if len(words) != 1:
            raise usage("too many arguments: a fraction, or absolute <bytes>")
        limit, shown = {"relative": _fraction(words[0])}, words[0]
        if not 0 <= limit["relative"] <= 1:
            raise usage("the threshold should be a fraction between 0.0 and 1.0")
    run.banner(f"Setting memory threshold on {run.node_name()} to {shown} ...")
    run.client.want("PUT", _node_place(run, "limits"), {"vm_memory_high_watermark": limit})


def set_disk_limit(run: Run) -> None:
    words = run.words
    if words[0] == "mem_relative":
        if len(words) != 2:
            raise usage("not enough arguments: mem_relative <fraction>")
        limit: dict[str, Any] = {"relative": _fraction(words[1])}
        shown = f"{words[1]} times the total RAM"
    else:
        if len(words) != 1:
            raise usage("too many arguments: <bytes>, or mem_relative <fraction>")
        limit, shown = {"absolute": words[0]}, f"{words[0]} bytes"
    run.banner(f"Setting disk free limit on {run.node_name()} to {shown} ...")
    run.client.want("PUT", _node_place(run, "limits"), {"disk_free_limit": limit})


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise usage(f"'{text}' is no fraction: write 0.4, say") from None


def set_log_level(run: Run) -> None:
    level = run.word(0)
    if level not in LEVELS:
        from warren.base.text import nearest

        guess = nearest(level, LEVELS)
        hint = f" Did you mean '{guess}'?" if guess is not None else ""
        raise usage(f"level must be one of {', '.join(LEVELS)}.{hint}")
    body = {"level": level}
    if len(run.words) > 1:
        body["category"] = run.word(1)
    run.banner(f'Setting log level to "{level}" on node {run.node_name()} ...')
    run.client.want("PUT", _node_place(run, "log-levels"), body)


def rotate_logs(run: Run) -> None:
    run.banner(f"Rotating logs for node {run.node_name()} ...")
    run.client.want("POST", _node_place(run, "rotate-logs"), {})


def log_location(run: Run) -> None:
    run.say(run.client.get(f"{_node_place(run, 'log')}?lines=1")["path"])


def log_tail(run: Run) -> None:
    lines = number(run.options.get("number", "50"), "number")
    run.banner(f"Last {lines} log lines on node {run.node_name()} ...")
    for line in run.client.get(f"{_node_place(run, 'log')}?lines={lines}")["lines"]:
        run.say(line)


def log_tail_stream(run: Run) -> None:
    """New lines as they come, until interrupted."""
    until_s = None
    if "duration" in run.options:
        until_s = time.monotonic() + number(run.options["duration"], "duration")
    place = f"{_node_place(run, 'log')}?lines=1000"
    run.banner(f"Streaming logs from node {run.node_name()} ...")
    before: list[str] = run.client.get(place)["lines"]
    while until_s is None or time.monotonic() < until_s:
        time.sleep(LOOK_AGAIN_S)
        lines: list[str] = run.client.get(place)["lines"]
        for line in _new_lines(before, lines):
            run.say(line)
        before = lines


def _new_lines(before: list[str], lines: list[str]) -> list[str]:
    """Those behind the last one that was seen; all when it is not there any more."""
    if not before:
        return lines
    for at in range(len(lines) - 1, -1, -1):
        if lines[at] == before[-1]:
            return lines[at + 1 :]
    return lines


def report(run: Run) -> None:
    """All that someone who is asked for help wants to know. Secrets are not part of it."""
    from dataclasses import replace

    from warren.ctl.main import find

    name = run.node_name()
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    run.say(f"Reporting server status of node {name} on {moment} UTC\n")
    for title, words in _REPORT:
        command = find(title)
        assert command is not None
        run.say(f"# {title}\n")
        options = {key: value for key, value in run.options.items() if key in {"node", "vhost"}}
        one = replace(run, command=command, words=list(words), options={**options, "quiet": ""})
        try:
            command.run(one)
        except CtlError as error:
            run.say(str(error))
        run.say("")


def check_port_connectivity(run: Run) -> None:
    import socket

    name = run.node_name()
    run.banner(f"Testing TCP connections to all active listeners on node {name} ...")
    failed = []
    for row in run.client.get("/overview?columns=listeners")["listeners"]:
        host = run.client.host if row["ip_address"] in {"::", "0.0.0.0"} else row["ip_address"]
        try:
            socket.create_connection((host, row["port"]), 5).close()
        except OSError as error:
            failed.append(f"{host}:{row['port']} ({row['protocol']}): {error.strerror or error}")
    if failed:
        raise CtlError(UNAVAILABLE, "Connection attempts failed to " + ", ".join(failed))
    run.say(f"Successfully connected to all active listeners on node {name}.")


def check_virtual_hosts(run: Run) -> None:
    name = run.node_name()
    run.banner(f"Checking if all vhosts are running on node {name} ...")
    _health(run, "/health/checks/virtual-hosts")
    run.say(f"Node {name} reported all vhosts as running")


def check_certificate_expiration(run: Run) -> None:
    within = number(run.options.get("within", "4"), "within")
    unit = run.options.get("unit", "weeks")
    name = run.node_name()
    run.banner(f"Checking certificate expiration on node {name} ...")
    _health(run, f"/health/checks/certificate-expiration/{within}/{q(unit)}")
    run.say(f"No certificates are expiring within {within} {unit}.")


def _health(run: Run, place: str) -> None:
    answer = run.client.call("GET", place)
    if answer.status != 200:
        raise CtlError(UNAVAILABLE, f"Error:\n{answer.value['reason']}: {answer.value}")


def list_unresponsive_queues(run: Run) -> None:
    """A queue answers with its node: those of nodes that do not are the ones that are asked for."""
    run.banner("Timeout: 60.0 seconds ...")
    run.banner(f"Listing unresponsive queues for vhost {run.vhost} ...")
    rows = run.client.get(f"/queues/{run.vhost_path}")
    here = run.node_name() if "local" in run.options else None
    unwell = [
        {**row, "pid": f"<{row['node']}>", "recoverable_mirrors": row.get("recoverable_slaves")}
        for row in rows
        if row.get("state") not in WELL and here in {None, row["node"]}
    ]
    run.table(unwell, run.chosen_columns(("name",)))


def restart_vhost(run: Run) -> None:
    run.banner(f"Trying to restart vhost '{run.vhost}' on node {run.node_name()} ...")
    if run.client.call("GET", f"/vhosts/{run.vhost_path}").status == 404:
        raise CtlError(BAD_DATA, f"Error:\nno virtual host '{run.vhost}'")
    run.say(f"Vhost '{run.vhost}' is running already: virtual hosts do not fail by themselves here")


def list_nothing(run: Run) -> None:
    run.table(run.client.get("/feature-flags"), ("name", "state"))


COMMANDS = (
    Command(
        "set_vm_memory_high_watermark",
        "<fraction> [bytes]",
        "Sets the memory mark of a running node: a fraction, or absolute <bytes>",
        set_memory_mark,
    ),
    Command(
        "set_disk_free_limit",
        "<bytes> [fraction]",
        "Sets the disk limit of a running node: bytes, or mem_relative <fraction>",
        set_disk_limit,
    ),
    Command(
        "set_log_level",
        "<level> [category]",
        "Sets what a running node logs, of a category or of all",
        set_log_level,
    ),
    Command("rotate_logs", "", "Turns the log files over", rotate_logs),
    Command("log_location", "", "Shows where the log is written to", log_location),
    Command("log_tail", "", "Shows the last lines of the log", log_tail, {"number": True}),
    Command(
        "log_tail_stream", "", "Shows the log as it grows", log_tail_stream, {"duration": True}
    ),
    Command("report", "", "Tells all of a node, for those who are asked for help", report),
    Command(
        "check_port_connectivity",
        "",
        "Fails if a listener of the node cannot be connected to",
        check_port_connectivity,
    ),
    Command("check_virtual_hosts", "", "Fails if a virtual host does not run", check_virtual_hosts),
    Command(
        "check_certificate_expiration",
        "",
        "Fails if a certificate ends soon",
        check_certificate_expiration,
        {"within": True, "unit": True},
    ),
    Command(
        "list_unresponsive_queues",
        "[column ...]",
        "Lists queues whose node does not answer",
        list_unresponsive_queues,
        {"local": False, "queue-timeout": True},
        (
            "name",
            "durable",
            "auto_delete",
            "arguments",
            "pid",
            "node",
            "state",
            "recoverable_slaves",
            "recoverable_mirrors",
        ),
    ),
    Command("restart_vhost", "", "Says that a virtual host runs", restart_vhost),
    Command("list_feature_flags", "", "Lists feature flags: there are none", list_nothing),
)

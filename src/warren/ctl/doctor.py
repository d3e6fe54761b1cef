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

Finding = tuple[str, str]


def doctor(run: Run) -> None:
    began_s = time.time()
    overview, node = run.client.get("/overview"), own_node(run)
    run.banner(f"Examining node {node['name']} ...")
    findings = [
        *_resources(node),
        *_clock(run, began_s),
        *_users(run, overview),
        *_queues(run),
    ]
    if run.formatter == "json":
        run.table([{"problem": what, "fix": fix} for what, fix in findings], ("problem", "fix"))
    else:
        for what, fix in findings:
            run.say(f"! {what}\n  fix: {fix}")
    if findings:
        raise CtlError(UNAVAILABLE, f"{len(findings)} things to look at")
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
    wanted = "name,vhost,messages_ready,consumers"
    path = f"/queues?sort=messages_ready&sort_reverse=true&page=1&page_size=20&columns={wanted}"
    for row in run.client.get(path)["items"]:
        if row["messages_ready"] >= FORGOTTEN_MESSAGES and not row["consumers"]:
            yield (
                f"queue '{row['name']}' in vhost '{row['vhost']}' holds {row['messages_ready']} "
                "messages and has no consumer",
                "start its consumer, limit it with a max-length policy, or purge it",
            )


COMMANDS = (
    Command("doctor", "", "Looks for what is wrong or soon will be; fails if it finds any", doctor),
)

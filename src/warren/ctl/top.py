"""`warrenctl top`: nodes, rates and the busiest queues, renewed every second or two.

At a terminal it takes the whole screen: `q` ends it, `m` sorts by messages, `i` by what comes in,
`o` by what goes out, `n` by name. Elsewhere it prints one view after the other.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from warren.ctl.command import Command, Run, number
from warren.ctl.terminal import is_terminal, painted, size_text, without_control

INTERVAL_S = 2
SORTS = {
    "m": ("messages", "messages"),
    "i": ("incoming", "message_stats.publish_details.rate"),
    "o": ("outgoing", "message_stats.deliver_get_details.rate"),
    "n": ("name", "name"),
}
_COLUMNS = (
    "name,vhost,node,state,consumers,messages,messages_ready,messages_unacknowledged,"
    "message_stats.publish_details.rate,message_stats.deliver_get_details.rate,"
    "message_stats.ack_details.rate"
)


def top(run: Run) -> None:
    interval_s = float(number(run.options.get("interval", str(INTERVAL_S)), "interval"))
    count = number(run.options["count"], "count") if "count" in run.options else None
    key = run.options.get("sort", "messages")[:1]
    if key not in SORTS:
        from warren.ctl.errors import usage

        names = ", ".join(name for name, _ in SORTS.values())
        raise usage(f"sort must be one of {names}")
    if not is_terminal(sys.stdout) or not sys.stdin.isatty():
        for shown in range(count or 1):
            if shown:
                time.sleep(interval_s)
            for line in view(run, key, 200, 20):
                run.say(line)
        return
    with _whole_screen():
        _live(run, key, interval_s, count)


def _live(run: Run, key: str, interval_s: float, count: int | None) -> None:
    while count is None or count > 0:
        width, height = shutil.get_terminal_size()
        lines = view(run, key, width, height - 1)
        sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in lines) + "\x1b[J")
        sys.stdout.flush()
        count = None if count is None else count - 1
        pressed = _key(interval_s)
        if pressed == "q":
            return
        key = pressed if pressed in SORTS else key


@contextlib.contextmanager
def _whole_screen() -> Iterator[None]:
    """The other screen of the terminal, and keys as they are pressed."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _key(seconds: float) -> str:
    """The key that is pressed in that time; empty for none."""
    import select

    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""


def view(run: Run, key: str, width: int, height: int) -> list[str]:
    """The lines of one view."""
    overview = run.client.get("/overview")
    nodes = run.client.get("/nodes")
    name, field = SORTS[key]
    room = max(1, height - len(nodes) - 8)
    order = "" if key == "n" else "&sort_reverse=true"
    path = f"/queues?page=1&page_size={min(room, 500)}&sort={field}{order}&columns={_COLUMNS}"
    if "vhost" in run.options:
        path = path.replace("/queues?", f"/queues/{run.vhost_path}?")
    queues = run.client.get(path)
    stats, totals = overview["message_stats"], overview["object_totals"]
    lines = [
        painted(
            f"{overview['cluster_name']}  {time.strftime('%H:%M:%S')}  "
            f"{totals['connections']} connections  {totals['channels']} channels  "
            f"{totals['consumers']} consumers  {totals['queues']} queues",
            "bold",
        ),
        "  ".join(
            f"{label} {stats[f'{column}_details']['rate']:,.0f}/s"
            for label, column in (
                ("publish", "publish"),
                ("confirm", "confirm"),
                ("deliver", "deliver_get"),
                ("ack", "ack"),
                ("redeliver", "redeliver"),
            )
        ),
        f"{overview['queue_totals']['messages_ready']:,} ready  "
        f"{overview['queue_totals']['messages_unacknowledged']:,} unacknowledged",
        "",
    ]
    lines += [_node_line(node) for node in nodes]
    lines += [
        "",
        painted(_cells("QUEUE", "READY", "UNACKED", "IN/S", "OUT/S", "CONS", width), "dim"),
    ]
    lines += [_queue_line(row, width) for row in queues["items"][:room]]
    if queues["filtered_count"] > len(queues["items"][:room]):
        more = queues["filtered_count"] - len(queues["items"][:room])
        lines.append(painted(f"and {more} more, sorted by {name}", "dim"))
    return lines


def _node_line(node: dict[str, Any]) -> str:
    if not node.get("running"):
        return painted(f"{node['name']}  does not run", "red")
    alarms = [
        word
        for key, word in (("mem_alarm", "MEMORY"), ("disk_free_alarm", "DISK"))
        if node.get(key)
    ]
    text = (
        f"{node['name']}  memory {size_text(node['mem_used'])} of {size_text(node['mem_limit'])}  "
        f"disk {size_text(node['disk_free'])} free  "
        f"files {node['fd_used']} of {node['fd_total']}  up {_age(node['uptime'] // 1000)}"
    )
    return text + (painted(f"  ALARM: {', '.join(alarms)}", "red") if alarms else "")


def _age(seconds: int) -> str:
    days, rest = divmod(seconds, 86400)
    hours, rest = divmod(rest, 3600)
    text = f"{hours:02}:{rest // 60:02}:{rest % 60:02}"
    return f"{days} d {text}" if days else text


def _rate(row: dict[str, Any], column: str) -> str:
    rate = row.get("message_stats", {}).get(f"{column}_details", {}).get("rate", 0)
    return f"{rate:,.0f}"


def _queue_line(row: dict[str, Any], width: int) -> str:
    name = row["name"] if row["vhost"] == "/" else f"{row['vhost']}: {row['name']}"
    line = _cells(
        without_control(name),
        f"{row.get('messages_ready', 0):,}",
        f"{row.get('messages_unacknowledged', 0):,}",
        _rate(row, "publish"),
        _rate(row, "deliver_get"),
        str(row.get("consumers", 0)),
        width,
    )
    return line if row.get("state", "running") == "running" else painted(line, "yellow")


def _cells(
    name: str, ready: str, unacked: str, incoming: str, outgoing: str, consumers: str, width: int
) -> str:
    room = max(12, min(60, width - 52))
    name = name if len(name) <= room else name[: room - 1] + "…"
    return f"{name:<{room}} {ready:>12} {unacked:>10} {incoming:>10} {outgoing:>10} {consumers:>5}"


COMMANDS = (
    Command(
        "top",
        "",
        "Shows nodes, rates and the busiest queues live",
        top,
        {"interval": True, "count": True, "sort": True},
    ),
)

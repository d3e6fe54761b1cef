"""What nodes have put aside: pieces of logs, and messages that the cluster has gone on without."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from warren.ctl.command import Command, Run, number, q
from warren.ctl.errors import BAD_DATA, CtlError, usage

#: Messages asked for at a time.
AT_A_TIME = 200
COLUMNS = ("file", "node", "vhost", "queue", "messages", "bytes", "time", "reason")
SHOWN = ("exchange", "routing_key", "payload_bytes", "payload")


def salvage(run: Run) -> None:
    action = _ACTIONS.get(run.word(0))
    if action is None:
        raise usage(f"'{run.word(0)}' is not one of {', '.join(_ACTIONS)}")
    if run.word(0) != "list" and len(run.words) < 2:
        raise usage(f"salvage {run.word(0)} needs the name of a file: warrenctl salvage list")
    action(run)


def _list(run: Run) -> None:
    run.banner("Listing what was put aside on all nodes ...")
    run.table(run.client.get("/warren/salvage"), COLUMNS)


def _place(run: Run) -> str:
    """The path of the piece that is named. Raises CtlError when there is none, or several."""
    name, node = run.word(1), run.options.get("on")
    found = [row for row in run.client.get("/warren/salvage") if row["file"] == name]
    nodes = [row["node"] for row in found if node is None or row["node"] == node]
    if not nodes:
        raise CtlError(BAD_DATA, f"Error:\nnothing is kept as '{name}': warrenctl salvage list")
    if len(nodes) > 1:
        raise CtlError(BAD_DATA, f"Error:\n'{name}' is on {', '.join(nodes)}: say which, with --on")
    return f"/warren/salvage/{q(nodes[0])}/{q(name)}"


def _messages(run: Run, place: str, most: int | None, encoding: str) -> Iterator[dict[str, Any]]:
    first = 0
    while most is None or first < most:
        count = AT_A_TIME if most is None else min(AT_A_TIME, most - first)
        rows = run.client.get(f"{place}?first={first}&count={count}&encoding={encoding}")
        yield from rows
        first += len(rows)
        if len(rows) < count:
            return


def _show(run: Run) -> None:
    run.banner(f"Messages of {run.word(1)} ...")
    most = number(run.options.get("count", "10"), "--count")
    run.table(_messages(run, _place(run), most, "auto"), SHOWN)


def _export(run: Run) -> None:
    """A line of JSON for each message, to standard output or a file."""
    place, path = _place(run), run.word(2)
    run.banner(f"Exporting the messages of {run.word(1)} ...")
    rows = _messages(run, place, None, "base64")
    if not path or path == "-":
        for row in rows:
            sys.stdout.write(json.dumps(row) + "\n")
        return
    count = 0
    try:
        with open(path, "x", encoding="utf-8") as file:
            for count, row in enumerate(rows, start=1):  # noqa: B007 - told below
                file.write(json.dumps(row) + "\n")
    except OSError as error:
        raise CtlError(BAD_DATA, f"Error:\n{path} cannot be written: {error.strerror}") from error
    run.say(f"{count} messages exported to {path}")


def _republish(run: Run) -> None:
    place = _place(run)
    body = {name: run.options[name] for name in ("queue", "vhost") if name in run.options}
    run.banner(f"Publishing the messages of {run.word(1)} again ...")
    done = run.client.want("POST", f"{place}/republish", body)
    run.say(f"{done['republished']} messages are in queue '{done['queue']}' again")


def _drop(run: Run) -> None:
    place = _place(run)
    run.banner(f"Throwing {run.word(1)} away ...")
    run.client.want("DELETE", place)


_ACTIONS: dict[str, Callable[[Run], None]] = {
    "list": _list,
    "show": _show,
    "export": _export,
    "republish": _republish,
    "drop": _drop,
}

COMMANDS = (
    Command(
        "salvage",
        "<list|show|export|republish|drop> [file] [to]",
        "Lists, shows, exports, brings back or drops what nodes have put aside",
        salvage,
        {"on": True, "queue": True, "count": True},
        notes=(
            ("list", "what all nodes have put aside, and why"),
            ("show <file>", "the first messages of a file: --count <count> (10)"),
            (
                "export <file> [to]",
                "all of them, a line of JSON each, to a new file or standard output",
            ),
            (
                "republish <file>",
                "to their queue, or --queue <queue> (and -p); drops the file then",
            ),
            ("drop <file>", "throws them away"),
            ("--on <on>", "the node, where several have a file of that name"),
        ),
    ),
)

"""Spreading the masters of mirrored queues over the nodes."""

from __future__ import annotations

import datetime
import re
import time
from typing import Any

from warren.ctl.command import Command, Run
from warren.ctl.errors import BAD_DATA, SOFTWARE, TIMEOUT, CtlError, usage

PLACE = "/rebalance/queues"
LOOK_S = 0.2
#: Who asks for a time that is longer ago has mistaken it.
PAST = datetime.timedelta(minutes=5)
#: RabbitMQ's types of queues; of quorum queues and streams there are none here.
TYPES = ("all", "classic", "quorum", "stream")
NOTHING = "No master has to move: they are even, or no mirrored queue matches"
COLUMNS = ("Node name", "Number of replicated classic queues")


def rebalance(run: Run) -> None:
    if "cancel" in run.options:
        run.banner("Ending the rebalancing of queue masters ...")
        run.client.want("DELETE", PLACE)
        return
    if "status" in run.options:
        run.banner("Rebalancing of queue masters ...")
        _print_status(run, run.client.get(PLACE))
        return
    kind = run.word(0, "all")
    if kind not in TYPES:
        raise usage(f"type '{kind}' is not one of {', '.join(TYPES)}")
    order = _order(run)
    if "at" in order:
        run.banner(f"Rebalancing queue masters at {order['at']} ...")
        run.client.want("POST", PLACE, order)
        run.say(f"Appointed for {order['at']}; to forget it: warrenctl rebalance --cancel")
        return
    run.banner("Rebalancing queue masters ...")
    if kind in {"quorum", "stream"}:
        return
    answer = run.client.want("POST", PLACE, order)
    if "dry-run" in run.options:
        _print_moves(run, answer)
        return
    shown = _wait(run)
    _check_known(shown)
    _print_result(run, shown)
    _check_ended(shown)


def spread(run: Run) -> None:
    pattern = run.word(0)
    run.banner(f"Spreading the masters of queues '{pattern}' in vhost '{run.vhost}' ...")
    order: dict[str, Any] = {
        "strategy": "even",
        "queue_pattern": pattern,
        "vhost_pattern": f"^{re.escape(run.vhost)}$",
    }
    if "dry-run" in run.options:
        order["dry_run"] = True
        _print_moves(run, run.client.want("POST", PLACE, order))
        return
    run.client.want("POST", PLACE, order)
    shown = _wait(run)
    if not shown.get("planned"):
        _check_known(shown)
        run.say(NOTHING)
        return
    run.say(_said(shown))
    _check_ended(shown)


def _order(run: Run) -> dict[str, Any]:
    """What is asked for, as the API takes it. Raises CtlError."""
    options = run.options
    order: dict[str, Any] = {
        key.replace("-", "_"): options[key]
        for key in ("strategy", "vhost-pattern", "queue-pattern")
        if key in options
    }
    if "dry-run" in options:
        order["dry_run"] = True
    if "pause" in options:
        try:
            order["pause_s"] = float(options["pause"])
        except ValueError:
            raise usage("--pause must be a number of seconds") from None
    if "at" in options:
        now = datetime.datetime.now().astimezone()
        when = moment(options["at"], now)
        if now - when > PAST:
            raise usage(f"{when.isoformat()} is over; without --at it is done now")
        order["at"] = when.isoformat()
    return order


def moment(text: str, now: datetime.datetime) -> datetime.datetime:
    """A date and time, or the next time a clock here shows `HH:MM`. Raises CtlError."""
    try:
        clock = datetime.time.fromisoformat(text)
    except ValueError:
        pass
    else:
        today = datetime.datetime.combine(now.date(), clock, clock.tzinfo or now.tzinfo)
        return today if today > now else today + datetime.timedelta(days=1)
    try:
        when = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise usage(f"'{text}' is no time: give 23:30, or 2030-12-31T23:30:00+01:00") from None
    return when if when.tzinfo is not None else when.replace(tzinfo=now.tzinfo)


def _wait(run: Run) -> dict[str, Any]:
    from warren.ctl.terminal import Progress

    end_s = time.monotonic() + float(run.options.get("timeout", "inf"))
    with Progress("moved", 0, run.is_quiet) as progress:
        while (shown := run.client.get(PLACE))["state"] == "running":
            if time.monotonic() >= end_s:
                told = f"{shown['moved']} of {shown['planned']} masters have moved so far"
                raise CtlError(TIMEOUT, f"Error:\n{told}")
            if shown["planned"]:
                progress.total = shown["planned"]
                progress.show(shown["moved"])
            time.sleep(LOOK_S)
    result: dict[str, Any] = shown
    return result


def _print_moves(run: Run, moves: list[dict[str, Any]]) -> None:
    """What a dry run has found."""
    run.table(moves, ("vhost", "name", "source", "target"))
    if not moves:
        run.banner(NOTHING)


def _print_result(run: Run, shown: dict[str, Any]) -> None:
    counts = [(row["name"], row["masters"]) for row in shown.get("nodes", ())]
    run.table([dict(zip(COLUMNS, row, strict=True)) for row in counts], COLUMNS)
    if not shown.get("planned"):
        run.banner(NOTHING)


def _said(shown: dict[str, Any]) -> str:
    return f"{shown.get('moved', 0)} of {shown.get('planned', 0)} masters have moved"


def _print_status(run: Run, shown: dict[str, Any]) -> None:
    """What is under way or was last, what is appointed, and who has how many masters."""
    if run.formatter == "json":
        import json

        run.say(json.dumps(shown))
        return
    if "planned" in shown:
        how = "under way" if shown["state"] == "running" else "the last one"
        run.say(f"{how}, by {shown['strategy']}: {_said(shown)}, {shown['failed']} could not")
    else:
        run.say("none is under way, and none was since the node that leads has started")
    appointment = shown.get("appointment")
    run.say(f"appointed: {appointment['at'] if appointment else 'none'}")
    counts = [(row["name"], row["masters"]) for row in shown.get("nodes", ())]
    run.table([dict(zip(COLUMNS, row, strict=True)) for row in counts], COLUMNS)


def _check_known(shown: dict[str, Any]) -> None:
    """Raises CtlError when another node leads now, which knows of no rebalancing."""
    if "nodes" in shown and "planned" not in shown:
        raise CtlError(
            SOFTWARE,
            "Error:\nit was ended half-way, since the node that led the cluster does not any more; "
            "say it again",
        )


def _check_ended(shown: dict[str, Any]) -> None:
    """Raises CtlError unless all masters have moved that were to."""
    left = shown.get("planned", 0) - shown.get("moved", 0) - shown.get("failed", 0)
    if left > 0:
        raise CtlError(
            SOFTWARE,
            f"Error:\nit was ended before {left} of {shown['planned']} masters had moved: "
            "warrenctl rebalance --cancel",
        )
    if shown.get("failed"):
        reasons = [f"{row['name']}: {row['reason']}" for row in shown["failures"]]
        raise CtlError(
            BAD_DATA,
            f"Error:\n{shown['failed']} masters could not be moved:\n" + "\n".join(reasons),
        )


COMMANDS = (
    Command(
        "rebalance",
        "[type]",
        "Spreads queue masters over the nodes, only onto synchronised mirrors",
        rebalance,
        {
            "strategy": True,
            "dry-run": False,
            "at": True,
            "pause": True,
            "cancel": False,
            "status": False,
            "vhost-pattern": True,
            "queue-pattern": True,
        },
        notes=(
            (
                "type",
                "all (default) or classic, as in RabbitMQ; of quorum and stream there are none",
            ),
            ("--strategy <strategy>", "min-masters (default), min-messages, min-connections,"),
            ("", "round-robin, random, even"),
            ("--dry-run", "shows the moves and makes none"),
            ("--at <at>", "not now, but at 03:30 or 2030-12-31T23:30:00+01:00; all nodes know it"),
            ("--pause <pause>", "one master at a time, and so many seconds of rest in between"),
            ("--cancel", "ends the one that is under way, and forgets what is appointed"),
            ("--status", "how far the last one is, what is appointed, who has how many masters"),
            ("--vhost-pattern <...>", "of matching virtual hosts only; a regular expression"),
            ("--queue-pattern <...>", "of matching queues only; a regular expression"),
        ),
    ),
    Command(
        "spread",
        "<pattern>",
        "Spreads the masters of matching queues evenly, only onto synchronised mirrors",
        spread,
        {"dry-run": False},
        notes=(
            ("pattern", "a regular expression for names of queues of the virtual host (-p)"),
            ("--dry-run", "shows the moves and makes none"),
        ),
    ),
)

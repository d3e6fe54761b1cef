"""What happens on the broker: events and the log, as they come."""

from __future__ import annotations

import json
import time
from typing import Any

from warren.ctl.command import Command, Run, number, q
from warren.ctl.errors import usage


def events(run: Run) -> None:
    """What happened lately; with --follow, what happens until interrupted."""
    last = 0
    until_s = None
    names = q(run.options.get("names", ""))
    if "for" in run.options:
        until_s = time.monotonic() + number(run.options["for"], "for")
    if "all" in run.options:
        if "follow" in run.options:
            raise usage("--all shows what was, --follow what comes to one node: not both")
        for event in run.client.get(f"/warren/events?names={names}"):
            _show_event(run, event)
        return
    for event in run.client.get(f"/cluster/events?names={names}"):
        last = event["id"]
        _show_event(run, event)
    if "follow" not in run.options:
        return
    place = f"/cluster/events/stream?since={last}&names={names}"
    for line in run.client.lines(place, until_s):
        if line.startswith("data: "):
            _show_event(run, json.loads(line[6:]))


def follow_events(run: Run) -> None:
    run.options["follow"] = ""
    run.options.setdefault("json", "")
    events(run)


def _is_about(run: Run, told: dict[str, Any]) -> bool:
    """Whether an event is one of the queue that is asked for, if one is."""
    queue = run.options.get("queue")
    if queue is None:
        return True
    return queue in {told.get("name"), told.get("queue")} and told.get("vhost") == run.vhost


def _show_event(run: Run, event: dict[str, Any]) -> None:
    if not _is_about(run, event["details"]):
        return
    if run.formatter == "json":
        run.say(json.dumps(event))
        return
    from warren.ctl.terminal import painted, without_control

    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["timestamp"] / 1000))
    told = event["details"]
    if "seen_by" in event:
        told = {**told, "seen_by": event["seen_by"]}
    # What nobody knows is not told.
    details = " ".join(f"{key}={value}" for key, value in told.items() if value is not None)
    run.say(f"{moment}  {painted(event['event'], 'bold')}  {without_control(details)}")


COMMANDS = (
    Command(
        "events",
        "",
        "Shows what happened lately; with -f, what happens",
        events,
        {"follow": False, "for": True, "all": False, "names": True, "queue": True},
        notes=(
            ("--follow, -f", "what happens from now on, too, until interrupted"),
            ("--for <for>", "with --follow: for so many seconds"),
            ("--all", "what all nodes have seen; else what this one has"),
            ("--names <names>", "events whose name begins so, as in: queue.promoted,queue.sync"),
            ("--queue <queue>", "events of this queue (and -p <vhost>)"),
        ),
    ),
    Command(
        "consume_event_stream",
        "",
        "Shows what happens as JSON, one event a line",
        follow_events,
        {"for": True},
    ),
)

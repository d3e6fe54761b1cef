"""What happens on the broker: events and the log, as they come."""

from __future__ import annotations

import json
import time
from typing import Any

from warren.ctl.command import Command, Run, number
from warren.ctl.errors import usage


def events(run: Run) -> None:
    """What happened lately; with --follow, what happens until interrupted."""
    last = 0
    until_s = None
    if "for" in run.options:
        until_s = time.monotonic() + number(run.options["for"], "for")
    if "all" in run.options:
        if "follow" in run.options:
            raise usage("--all shows what was, --follow what comes to one node: not both")
        for event in run.client.get("/warren/events"):
            _show_event(run, event)
        return
    for event in run.client.get("/cluster/events"):
        last = event["id"]
        _show_event(run, event)
    if "follow" not in run.options:
        return
    for line in run.client.lines(f"/cluster/events/stream?since={last}", until_s):
        if line.startswith("data: "):
            _show_event(run, json.loads(line[6:]))


def follow_events(run: Run) -> None:
    run.options["follow"] = ""
    run.options.setdefault("json", "")
    events(run)


def _show_event(run: Run, event: dict[str, Any]) -> None:
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
        {"follow": False, "for": True, "all": False},
    ),
    Command(
        "consume_event_stream",
        "",
        "Shows what happens as JSON, one event a line",
        follow_events,
        {"for": True},
    ),
)

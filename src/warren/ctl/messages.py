"""Commands on messages, and what happens live: publish, take, move, redrive, follow events."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from warren.ctl.command import Command, Run, json_value, number, q
from warren.ctl.errors import BAD_DATA, CtlError


def publish(run: Run) -> None:
    """To a queue, or with --exchange to an exchange under a routing key."""
    key = run.word(0)
    payload = run.words[1] if len(run.words) > 1 else sys.stdin.read()
    exchange = run.options.get("exchange", "amq.default")
    body = {
        "routing_key": key,
        "payload": payload,
        "payload_encoding": "string",
        "properties": json_value(run.options.get("properties", "{}")),
    }
    count = number(run.options.get("count", "1"), "count")
    if exchange == "amq.default":
        _make_queue(run, key)
    for _ in range(count):
        place = f"/exchanges/{run.vhost_path}/{q(exchange)}/publish"
        if not run.client.want("POST", place, body)["routed"]:
            raise CtlError(
                BAD_DATA, f"Error:\nno queue took the message: nothing is bound for '{key}'"
            )
    run.banner(f"Published {count} message{'s' if count != 1 else ''}.")


def _make_queue(run: Run, name: str) -> None:
    """A first message needs a queue to go to."""
    place = f"/queues/{run.vhost_path}/{q(name)}"
    if run.client.call("GET", f"{place}?columns=name").status == 404:
        run.client.want("PUT", place, {"durable": True})
        run.banner(f"There was no queue '{name}': made it.")


def take(run: Run) -> None:
    """Messages leave the queue, unless --requeue puts them back where they were."""
    body = {
        "count": number(run.options.get("count", "1"), "count"),
        "ackmode": "reject_requeue_true" if "requeue" in run.options else "ack_requeue_false",
        "encoding": "auto",
    }
    found = run.client.want("POST", f"/queues/{run.vhost_path}/{q(run.word(0))}/get", body)
    _show_messages(run, found)


def _show_messages(run: Run, found: list[dict[str, Any]]) -> None:
    if run.formatter != "table":
        columns = (
            "exchange",
            "routing_key",
            "redelivered",
            "payload_bytes",
            "properties",
            "payload",
        )
        run.table(found, columns)
        return
    for message in found:
        run.say(message["payload"])


def move(run: Run) -> None:
    source, target = run.words
    body: dict[str, Any] = {"to": target}
    if "count" in run.options:
        body["count"] = number(run.options["count"], "count")
    run.banner(f"Moving messages of queue '{source}' to queue '{target}' ...")
    _report(run, run.client.want("POST", f"/queues/{run.vhost_path}/{q(source)}/move", body))


def redrive(run: Run) -> None:
    body: dict[str, Any] = {}
    if "count" in run.options:
        body["count"] = number(run.options["count"], "count")
    run.banner(f"Sending dead letters of queue '{run.word(0)}' back to where they came from ...")
    _report(
        run, run.client.want("POST", f"/queues/{run.vhost_path}/{q(run.word(0))}/redrive", body)
    )


def _report(run: Run, outcome: dict[str, int]) -> None:
    kept = f", {outcome['kept']} stayed" if outcome["kept"] else ""
    run.say(f"{outcome['moved']} messages moved{kept}")


def unacked(run: Run) -> None:
    run.banner(f"Listing unacknowledged deliveries of queue '{run.word(0)}' ...")
    rows = [
        {
            "delivery_tag": row["delivery_tag"],
            "consumer_tag": row["consumer_tag"],
            "age_ms": row["age_ms"],
            "channel": row["channel_details"]["name"],
            "user": row["channel_details"]["user"],
        }
        for row in run.client.get(f"/queues/{run.vhost_path}/{q(run.word(0))}/unacked")
    ]
    run.table(rows, ("delivery_tag", "consumer_tag", "age_ms", "channel", "user"))


def events(run: Run) -> None:
    """What happened lately; with --follow, what happens until interrupted."""
    last = 0
    while True:
        for event in run.client.get(f"/cluster/events?since={last}"):
            last = event["id"]
            _show_event(run, event)
        if "follow" not in run.options:
            return
        time.sleep(0.5)


def _show_event(run: Run, event: dict[str, Any]) -> None:
    if run.formatter == "json":
        run.say(json.dumps(event))
        return
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["timestamp"] / 1000))
    details = " ".join(f"{key}={value}" for key, value in event["details"].items())
    run.say(f"{moment}  {event['event']}  {details}")


COMMANDS = (
    Command(
        "pub",
        "<queue> [payload]",
        "Publishes a message; from standard input without a payload",
        publish,
        {"exchange": True, "properties": True, "count": True},
    ),
    Command(
        "get", "<queue>", "Takes messages out of a queue", take, {"count": True, "requeue": False}
    ),
    Command("move", "<queue> <to>", "Moves messages to another queue", move, {"count": True}),
    Command(
        "redrive",
        "<queue>",
        "Sends dead letters back to the queue they died in",
        redrive,
        {"count": True},
    ),
    Command("unacked", "<queue>", "Lists who holds unacknowledged messages", unacked),
    Command("events", "", "Shows what happened lately", events, {"follow": False}),
)

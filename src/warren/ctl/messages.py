"""Commands on messages: publish, take, look, follow, move, redrive."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import Any

from warren.ctl.client import granted
from warren.ctl.command import Command, Run, json_value, number, q
from warren.ctl.errors import BAD_DATA, UNAVAILABLE, CtlError, usage
from warren.ctl.mirrors import no_queue

#: Messages moved with one request; between two of them there is progress to be seen.
MOVED_AT_A_TIME = 10_000
#: Messages that were there before, shown by `tail` at first.
TAIL_FIRST = 10
_COLUMNS = ("exchange", "routing_key", "redelivered", "payload_bytes", "properties", "payload")


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


def _ask(run: Run, method: str, what: str, body: object = None) -> Any:
    """A request about the queue that is named. Raises CtlError, with the name that may be meant."""
    answer = run.client.call(method, f"/queues/{run.vhost_path}/{q(run.word(0))}{what}", body)
    if answer.status == 404 and not _has_queue(run):
        raise CtlError(BAD_DATA, no_queue(run))
    return granted(answer)


def _has_queue(run: Run) -> bool:
    place = f"/queues/{run.vhost_path}/{q(run.word(0))}?columns=name"
    return run.client.call("GET", place).status == 200


def take(run: Run) -> None:
    """Messages leave the queue, unless --requeue puts them back where they were."""
    body = {
        "count": number(run.options.get("count", "1"), "count"),
        "ackmode": "reject_requeue_true" if "requeue" in run.options else "ack_requeue_false",
        "encoding": "auto",
    }
    show_messages(run, _ask(run, "POST", "/get", body), _COLUMNS)


def peek(run: Run) -> None:
    """Messages stay where they are, and are not marked as redelivered."""
    body: dict[str, Any] = {
        "count": number(run.options.get("count", "1"), "count"),
        "offset": number(run.options.get("offset", "0"), "offset"),
        "unacked": "unacked" in run.options,
        "encoding": "auto",
        "match": _match(run),
    }
    if "truncate" in run.options:
        body["truncate"] = number(run.options["truncate"], "truncate")
    show_messages(run, _ask(run, "POST", "/peek", body), ("slot", *_COLUMNS))


def tail(run: Run) -> None:
    """New messages as they come, until interrupted; none is consumed, and none is missed."""
    from warren.ctl.following import follow_queue

    _ask(run, "GET", "?columns=name")
    count = number(run.options.get("count", str(TAIL_FIRST)), "count")
    until_s = None
    if "for" in run.options:
        until_s = time.monotonic() + number(run.options["for"], "for")
    run.banner(f"Following queue '{run.word(0)}' in vhost '{run.vhost}', Ctrl-C to end ...")
    for answer in follow_queue(run, count, _match(run), until_s):
        if answer["missed"]:
            run.banner(f"({answer['missed']} messages were missed)")
        if run.formatter == "json":
            for message in answer["messages"]:
                run.say(json.dumps(message))
        else:
            show_messages(run, answer["messages"], ("slot", *_COLUMNS))


def show_messages(run: Run, found: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    """A table where one was asked for; else the payloads, and for people what goes with them."""
    from warren.ctl.terminal import is_terminal

    if run.formatter != "table":
        run.table(found, columns)
        return
    if not is_terminal(sys.stdout):
        for message in found:
            run.say(message["payload"])
        return
    for message in found:
        _show_to_person(run, message)


def _show_to_person(run: Run, message: dict[str, Any]) -> None:
    from warren.ctl.terminal import painted, size_text, without_control

    place = message["exchange"] or "(default exchange)"
    head = f"{place} → {message['routing_key']}  {size_text(message['payload_bytes'])}"
    if message["redelivered"]:
        head += "  redelivered"
    if "slot" in message:
        head += f"  slot {message['slot']}"
    run.say(painted(without_control(head), "cyan"))
    if message["properties"]:
        shown = json.dumps(message["properties"], ensure_ascii=False)
        run.say(painted(without_control(shown), "dim"))
    payload = message["payload"]
    if message["payload_encoding"] == "string" and payload[:1] in {"{", "["}:
        with contextlib.suppress(ValueError):
            payload = json.dumps(json.loads(payload), indent=2, ensure_ascii=False)
    run.say(without_control(payload))


# -- moving ----------------------------------------------------------------------------------------


def _match(run: Run) -> dict[str, str]:
    """`--match field=pattern`, any number of times. Raises CtlError."""
    found: dict[str, str] = {}
    for given in run.options.get("match", "").splitlines():
        name, equals, pattern = given.partition("=")
        if not equals:
            raise usage(f"--match takes field=pattern, not '{given}'")
        found[name] = pattern
    return found


def move(run: Run) -> None:
    source, target = run.words
    run.banner(f"Moving messages of queue '{source}' to queue '{target}' ...")
    _move(run, "move", {"to": target})


def redrive(run: Run) -> None:
    run.banner(f"Sending dead letters of queue '{run.word(0)}' back to where they came from ...")
    _move(run, "redrive", {})


def _move(run: Run, verb: str, body: dict[str, Any]) -> None:
    """Some thousands at a time, so that there is progress to be seen."""
    from warren.ctl.terminal import Progress

    dry_run = "dry-run" in run.options
    body |= {"match": _match(run), "dry_run": dry_run}
    ready = int(_ask(run, "GET", "?columns=messages_ready")["messages_ready"])
    left = number(run.options["count"], "count") if "count" in run.options else ready
    total: dict[str, Any] = {"moved": 0, "kept": 0, "unmatched": 0, "to": {}, "dry_run": dry_run}
    total["complete"] = True
    with Progress("moved", min(left, ready), run.is_quiet) as progress:
        while True:
            # Asked even for nothing: whoever names no queue is to hear of it.
            body["count"] = min(left, MOVED_AT_A_TIME)
            outcome = _ask(run, "POST", f"/{verb}", body)
            for name in ("moved", "kept", "unmatched"):
                total[name] += outcome[name]
            for name, count in outcome["to"].items():
                total["to"][name] = total["to"].get(name, 0) + count
            progress.show(total["moved"])
            left -= outcome["moved"]
            total["complete"] = outcome.get("complete", True)
            if left <= 0 or outcome["moved"] < body["count"]:
                break
            body["after"] = outcome["last_slot"]
    _report(run, total)
    if not total["complete"]:
        raise CtlError(
            UNAVAILABLE,
            f"Error:\nqueue '{run.word(0)}' has no master that could go on: try again for the rest",
        )


def _report(run: Run, total: dict[str, Any]) -> None:
    if run.formatter == "json":
        run.say(json.dumps(total))
        return
    verb = "would be moved" if total["dry_run"] else "moved"
    stayed = [f", {total['kept']} stayed"] if total["kept"] else []
    stayed += [f", {total['unmatched']} did not match"] if total["unmatched"] else []
    run.say(f"{total['moved']} messages {verb}{''.join(stayed)}")
    if len(total["to"]) > 1 or (total["dry_run"] and total["to"]):
        for name, count in sorted(total["to"].items()):
            run.say(f"  {count} to queue '{name}'")


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
        for row in _ask(run, "GET", "/unacked")
    ]
    run.table(rows, ("delivery_tag", "consumer_tag", "age_ms", "channel", "user"))


def cursors(run: Run) -> None:
    run.banner(f"Listing cursors of vhost '{run.vhost}' ...")
    columns = ("queue", "name", "mode", "position", "end", "lag", "in_use", "idle_s", "node")
    rows = run.client.get(f"/cursors/{run.vhost_path}")
    run.table([{name: row[name] for name in columns} for row in rows], columns)


def delete_cursor(run: Run) -> None:
    queue, name = run.word(0), run.word(1)
    run.banner(f"Dropping cursor '{name}' of queue '{queue}' ...")
    run.client.want("DELETE", f"/queues/{run.vhost_path}/{q(queue)}/cursors/{q(name)}")


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
    Command(
        "peek",
        "<queue>",
        "Shows messages of a queue; does not consume or mark them",
        peek,
        {"count": True, "offset": True, "truncate": True, "unacked": False, "match": True},
    ),
    Command(
        "tail",
        "<queue>",
        "Shows messages of a queue as they come; does not consume them",
        tail,
        {"count": True, "for": True, "match": True},
    ),
    Command(
        "move",
        "<queue> <to>",
        "Moves messages to another queue",
        move,
        {"count": True, "match": True, "dry-run": False},
    ),
    Command(
        "redrive",
        "<queue>",
        "Sends dead letters back to the queue they died in",
        redrive,
        {"count": True, "match": True, "dry-run": False},
    ),
    Command("unacked", "<queue>", "Lists who holds unacknowledged messages", unacked),
    Command("list_cursors", "", "Lists cursors, and how far behind each is", cursors),
    Command("delete_cursor", "<queue> <cursor>", "Drops a cursor", delete_cursor),
)

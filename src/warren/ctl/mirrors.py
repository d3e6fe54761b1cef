"""Commands about mirrored queues: their rings, synchronising them, and moving their masters."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from warren.ctl.command import Command, Run, q
from warren.ctl.errors import BAD_DATA, TIMEOUT, CtlError

if TYPE_CHECKING:
    from warren.ctl.terminal import Progress

#: How often the progress of a copy is looked at, and how long it may be before it has begun.
LOOK_S, BEGIN_S = 0.5, 5.0
COLUMNS = (
    "node",
    "role",
    "explicit",
    "synchronised",
    "online",
    "position",
    "applied",
    "lacks_messages",
    "lag_messages",
    "lag_bytes",
    "lag_seconds",
    "since",
    "progress",
)


def typed(run: Run, command: str) -> str:
    """A command about the same queue, as it is to be typed."""
    vhost = () if run.vhost == "/" else ("-p", run.vhost)
    return shlex.join(("warrenctl", *vhost, command, run.word(0)))


def queue_place(run: Run) -> str:
    """The path of the queue that is named. Raises CtlError when there is none."""
    place = f"/queues/{run.vhost_path}/{q(run.word(0))}"
    if run.client.call("GET", f"{place}?columns=name").status == 404:
        raise CtlError(BAD_DATA, no_queue(run))
    return place


def no_queue(run: Run) -> str:
    """There is no such queue; which one may be meant."""
    from warren.base.text import nearest

    answer = run.client.call("GET", f"/queues/{run.vhost_path}?columns=name&disable_stats=true")
    if answer.status == 404:
        return f"Error:\nno virtual host '{run.vhost}'"
    names = [row["name"] for row in answer.value] if answer.status == 200 else []
    guess = nearest(run.word(0), names)
    hint = f". Did you mean '{guess}'?" if guess is not None else ""
    return f"Error:\nno queue '{run.word(0)}' in vhost '{run.vhost}'{hint}"


def mirrors(run: Run) -> None:
    run.banner(f"Mirrors of queue '{run.word(0)}' in vhost '{run.vhost}' ...")
    ring = run.client.get(f"{queue_place(run)}/mirrors")
    if run.formatter == "json":
        import json

        run.say(json.dumps(ring))
        return
    rows = [
        {**replica, "since": _time(replica.get("since")), "progress": _progress(replica)}
        for replica in ring["replicas"]
    ]
    if run.formatter == "csv":
        run.table(rows, COLUMNS)
        return
    where = f", master on {ring['master']}" if ring["master"] else ""
    run.say(f"{ring['state']}{where}, epoch {ring['epoch']}")
    run.table(rows, COLUMNS)
    for line in ring["explain"]:
        run.say(line)


def explain(run: Run) -> None:
    run.banner(f"What would follow for queue '{run.word(0)}' in vhost '{run.vhost}' ...")
    ring = run.client.get(f"{queue_place(run)}/mirrors")
    if run.formatter == "json":
        import json

        run.say(json.dumps(ring["explain"]))
        return
    for line in ring["explain"]:
        run.say(line)


def _time(wall_ms: int | None) -> str | None:
    if wall_ms is None:
        return None
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(wall_ms / 1000))


def _progress(replica: dict[str, Any]) -> str:
    """`1200/5000 messages, 3.4 MB, 12 s left` while a copy is under way."""
    sync = replica["sync"]
    if sync is None:
        return ""
    said = [f"{_or_unknown(sync['done'])}/{_or_unknown(sync['total'])} messages"]
    if sync["bytes_done"] is not None:
        said.append(f"{sync['bytes_done'] / 1e6:.1f} MB")
    if sync["eta_seconds"] is not None:
        said.append(f"{sync['eta_seconds']:.0f} s left")
    return ", ".join(said)


def _or_unknown(number: int | None) -> str:
    return "?" if number is None else str(number)


def sync_queue(run: Run) -> None:
    run.banner(f"Synchronising queue '{run.word(0)}' in vhost '{run.vhost}' ...")
    place = queue_place(run)
    _act(run, {"action": "sync"})
    if "no-wait" not in run.options:
        _wait_for_sync(run, place)


def _wait_for_sync(run: Run, place: str) -> None:
    """Until all that are online are synchronised. Raises CtlError when that ends otherwise."""
    end_s = time.monotonic() + float(run.options.get("timeout", "inf"))
    idle_s = time.monotonic()
    from warren.ctl.terminal import Progress

    with Progress("synchronised", 0, run.is_quiet) as bar:
        progress = SyncProgress(bar)
        while missing := _missing(ring := run.client.get(f"{place}/mirrors")):
            now_s = time.monotonic()
            if any(replica["sync"] is not None for replica in missing):
                idle_s = now_s
            names = ", ".join(replica["node"] for replica in missing)
            if now_s >= end_s:
                raise CtlError(TIMEOUT, f"Error:\nnot synchronised in time: {names}")
            if now_s - idle_s > BEGIN_S:
                raise CtlError(BAD_DATA, f"Error:\nsynchronising has ended, without {names}")
            progress.show(missing)
            time.sleep(LOOK_S)
    if away := [row["node"] for row in ring["replicas"] if not row["synchronised"]]:
        # `online` is false of all of them.
        be = "is" if len(away) == 1 else "are"
        run.banner(f"{', '.join(away)} {be} down, and lack{'s' * (len(away) == 1)} what came since")


class SyncProgress:
    """How far all mirrors together have come, as soon as they know how much there is."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        #: Of each mirror that has begun: messages that it has got, and that it is to get.
        self._done: dict[str, int] = {}
        self._totals: dict[str, int] = {}

    def show(self, missing: Sequence[dict[str, Any]]) -> None:
        for row in missing:
            if row["sync"] and row["sync"]["total"]:
                self._totals[row["node"]] = row["sync"]["total"]
                self._done[row["node"]] = row["sync"]["done"] or 0
        # Those that are not missing any more have all.
        for node in self._totals.keys() - {row["node"] for row in missing}:
            self._done[node] = self._totals[node]
        if self._totals:
            self._bar.total = sum(self._totals.values())
            self._bar.show(sum(self._done.values()))


def _missing(ring: dict[str, Any]) -> Sequence[dict[str, Any]]:
    return [row for row in ring["replicas"] if row["online"] and not row["synchronised"]]


def cancel_sync_queue(run: Run) -> None:
    """Said twice, it is done once, as in RabbitMQ: that nothing was under way is no error."""
    run.banner(f"Stopping synchronising queue '{run.word(0)}' in vhost '{run.vhost}' ...")
    try:
        _act(run, {"action": "cancel_sync"})
    except CtlError as error:
        if "not_syncing" not in str(error):
            raise
        run.say("not_syncing")


def transfer_master(run: Run) -> None:
    name, node = run.word(0), run.word(1)
    run.banner(f"Transferring the master of queue '{name}' in vhost '{run.vhost}' to {node} ...")
    _act(run, {"action": "transfer_leader", "node": node})


def _act(run: Run, asked: dict[str, str]) -> None:
    """What the API says in one word, as RabbitMQ's does, is said in a sentence."""
    try:
        run.client.want("POST", f"{queue_place(run)}/actions", asked)
    except CtlError as error:
        if "not_mirrored" not in str(error):
            raise
        raise CtlError(
            error.status,
            f"Error:\nqueue '{run.word(0)}' has no mirrors; it gets one by a policy with ha-mode, "
            "or by warrenctl add_queue_mirror_link",
        ) from error


def add_queue_mirror_link(run: Run) -> None:
    name, node = run.word(0), run.word(1)
    run.banner(f"Adding a mirror of queue '{name}' in vhost '{run.vhost}' on {node} ...")
    place = queue_place(run)
    run.client.want("PUT", f"{place}/mirrors/{q(node)}")
    if "no-wait" not in run.options:
        _wait_for_mirror(run, place, node)


def _wait_for_mirror(run: Run, place: str, node: str) -> None:
    """Until the node has everything. Raises CtlError where that does not come by itself."""
    end_s = time.monotonic() + float(run.options.get("timeout", "inf"))
    begin_s, said = time.monotonic(), ""
    while True:
        ring = run.client.get(f"{place}/mirrors")
        row = next((it for it in ring["replicas"] if it["node"] == node), None)
        if row is not None and row["synchronised"]:
            return
        if row is not None and not row["online"]:
            run.banner(f"{node} is down: it gets its copy when it is back")
            return
        now_s = time.monotonic()
        if row is not None and row["sync"] is not None:
            begin_s = now_s
            if (progress := _progress(row)) != said:
                said = progress
                run.banner(f"{node}: {progress}")
        if now_s >= end_s:
            raise CtlError(
                TIMEOUT,
                f"Error:\n{node} has not got everything in time: {typed(run, 'mirrors')}",
            )
        if now_s - begin_s > BEGIN_S and row is not None:
            raise CtlError(
                BAD_DATA,
                f"Error:\n{node} has a mirror, and nothing is copied to it: "
                + typed(run, "sync_queue"),
            )
        time.sleep(LOOK_S)


def remove_queue_mirror_link(run: Run) -> None:
    name, node = run.word(0), run.word(1)
    run.banner(f"Removing the mirror of queue '{name}' in vhost '{run.vhost}' on {node} ...")
    run.client.want("DELETE", f"{queue_place(run)}/mirrors/{q(node)}")


COMMANDS = (
    Command("mirrors", "<queue>", "Shows the ring of a queue: who has what", mirrors),
    Command("explain", "<queue>", "Says what would follow from the loss of each node", explain),
    Command(
        "sync_queue",
        "<queue>",
        "Synchronises the mirrors of a queue",
        sync_queue,
        {"no-wait": False},
        notes=(("--no-wait", "returns when it has begun"),),
    ),
    Command("cancel_sync_queue", "<queue>", "Stops synchronising a queue", cancel_sync_queue),
    Command(
        "add_queue_mirror_link",
        "<queue> <node>",
        "Has a mirror of a queue on a node, whatever its policy, and waits until it has everything",
        add_queue_mirror_link,
        {"no-wait": False},
        notes=(("--no-wait", "returns when the cluster has agreed on it"),),
    ),
    Command(
        "remove_queue_mirror_link",
        "<queue> <node>",
        "Leaves it to the policy again whether a node has a mirror of a queue",
        remove_queue_mirror_link,
    ),
    Command(
        "transfer_master",
        "<queue> <node>",
        "Makes another synchronised mirror of a queue its master",
        transfer_master,
    ),
)

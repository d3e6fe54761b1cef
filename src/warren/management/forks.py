"""Forks of mirrored queues as operators see them (`cluster_partition_handling = autoheal`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from warren.engine.amqp_queue import AmqpQueue
    from warren.engine.engine import Engine
    from warren.management.metrics import Page

Shown = dict[str, Any]
#: Nodes that have a fork to be merged tell of it at least so often.
TOLD_MS = 5_000


def forks_of(engine: Engine) -> list[Shown]:
    """Those that this node has: being made, open, or being merged."""
    if engine.mirrors is None:
        return []
    found: list[Shown] = engine.mirrors.forks.describe()
    return [{"node": engine.settings.node_name, **row} for row in found]


def explain_forks(engine: Engine, queue: AmqpQueue) -> list[str]:
    """What this node knows of forks of a queue, a sentence each."""
    if engine.mirrors is None:
        return []
    said = []
    here = engine.settings.node_name
    for row in forks_of(engine):
        if (row["vhost"], row["queue"]) != (queue.vhost.name, queue.name):
            continue
        if row["state"] == "opening":
            said.append(f"{here} is about to serve a fork of it, until the majority is back")
        elif row["state"] == "open":
            said.append(
                f"{here} serves a fork of it, {row['fork']}, with {row['messages']:,} messages; it "
                "is merged when the majority is back"
            )
        else:
            why = f": waits, {row['waits_for']}" if row["waits_for"] else ""
            said.append(
                f"fork {row['fork']} is being merged: {row['messages']:,} messages and "
                f"{row['acknowledgements']:,} acknowledgements are left{why}"
            )
            if row["unreadable"]:
                said.append(
                    f"{row['unreadable']:,} messages that were published to fork {row['fork']} "
                    f"cannot be read on the disk of {here}, and nobody else has them"
                )
    told = engine.mirrors.forks.told.get(queue.number)
    if told is not None and engine.clock.now_ms() - told[0] < TOLD_MS:
        why = f": waits, {told[1]}" if told[1] else ""
        said.append(f"a fork that another node has had is being merged into it{why}")
    return said


def fork_metrics(engine: Engine, page: Page) -> None:
    """How many there are, and what came of those that are over."""
    rows = forks_of(engine)
    page.head("warren_forks", "gauge", "Forks of mirrored queues that this node has")
    for state in ("open", "merging", "unreadable"):
        page.value("warren_forks", sum(it["state"] == state for it in rows), {"state": state})
    merging = None if engine.mirrors is None else engine.mirrors.forks.merging
    for name, text, count in (
        ("warren_forks_merged_total", "Forks that were merged", "merged_forks"),
        (
            "warren_fork_messages_merged_total",
            "Messages of forks that were brought back to their queues",
            "merged_messages",
        ),
        (
            "warren_fork_messages_unreadable_total",
            "Messages of forks that the disk did not give back when they were merged",
            "unreadable_messages",
        ),
        (
            "warren_fork_messages_salvaged_total",
            "Messages of forks whose queues are gone",
            "salvaged_messages",
        ),
    ):
        page.counter(name, text, 0 if merging is None else getattr(merging, count))

"""Metrics of mirrored queues: what RabbitMQ's users asked for and never got.

Each node tells of the queues whose master it is, so that sums over nodes are right. Promotions and
synchronisations are counted where they happened, since the node was started.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from warren.management.forks import fork_metrics
from warren.management.mirrors import is_sync_critical, show_ring, view_of
from warren.management.pace import Pace

if TYPE_CHECKING:
    from warren.cluster.metadata import View
    from warren.management.context import Context
    from warren.management.metrics import Page

#: Name, help; values of each mirror, or of each queue, and their sums.
_MIRROR_GAUGES = (
    ("warren_mirror_lag_messages", "Operations that a mirror has not acknowledged yet"),
    ("warren_mirror_lag_bytes", "Bytes of operations that a mirror has not acknowledged yet"),
    ("warren_mirror_sync_done_messages", "Messages that a mirror has got of the copy under way"),
    ("warren_mirror_sync_total_messages", "Messages of the copy that a mirror is getting"),
)
_PROMOTIONS = {"clean": "queue.promoted", "unclean": "queue.promoted_unclean"}


@dataclass(slots=True)
class Ring:
    """A queue whose master is here: its labels, and its mirrors as the API shows them."""

    labels: dict[str, str]
    mirrors: list[dict[str, Any]]
    is_critical: bool
    unreplicated: int

    @property
    def synchronised(self) -> int:
        return sum(mirror["synchronised"] for mirror in self.mirrors)


def figures(mirror: dict[str, Any]) -> tuple[int, int, int, int]:
    """Of one mirror, in the order of the gauges; what is not known counts as nothing."""
    sync = mirror["sync"] or {}
    return (
        mirror["lag_messages"] or 0,
        mirror["lag_bytes"] or 0,
        sync.get("done") or 0,
        sync.get("total") or 0,
    )


def _holders(view: View) -> tuple[str, ...]:
    return (*view.in_sync, *view.learners)


async def rings_of(context: Context) -> list[Ring]:
    engine, pace = context.engine, Pace()
    found = []
    for vhost in list(engine.vhosts.values()):
        for queue in list(vhost.queues_here()):
            view = view_of(engine, queue)
            # A queue may have a view and no mirrors: it had some once, or is one whose home moved.
            has_mirrors = view is not None and len({*view.wanted, *_holders(view)}) > 1
            if view is not None and has_mirrors and view.master == context.node_name:
                ring = show_ring(engine, queue)
                mirrors = [
                    row for row in ring["replicas"] if row["role"] != "master" and row["online"]
                ]
                labels = {"vhost": vhost.name, "queue": queue.name}
                unreplicated = ring["unreplicated_confirms"] or 0
                critical = is_sync_critical(engine, queue)
                found.append(Ring(labels, mirrors, critical, unreplicated))
            await pace.rest()
    return found


async def mirror_metrics(context: Context, page: Page, per_object: bool) -> None:
    """All of them; by queue and node only on request."""
    rings = await rings_of(context)
    for name, text, of_ring in (
        ("warren_mirrors", "Mirrors that are there", lambda ring: len(ring.mirrors)),
        (
            "warren_mirrors_synchronised",
            "Mirrors that have everything",
            lambda ring: ring.synchronised,
        ),
        (
            "warren_unreplicated_confirms",
            "What was confirmed and is on the master's disk only (ha-replication async)",
            lambda ring: ring.unreplicated,
        ),
    ):
        page.head(name, "gauge", text)
        if not per_object:
            page.value(name, sum(map(of_ring, rings)))
        for ring in rings if per_object else ():
            page.value(name, of_ring(ring), ring.labels)
    for column, (name, text) in enumerate(_MIRROR_GAUGES):
        page.head(name, "gauge", text)
        if not per_object:
            page.value(name, sum(figures(m)[column] for ring in rings for m in ring.mirrors))
        for ring in rings if per_object else ():
            for mirror in ring.mirrors:
                page.value(name, figures(mirror)[column], {**ring.labels, "node": mirror["node"]})
    _lag_seconds(page, rings, per_object)
    page.gauge("warren_mirrored_queues", "Mirrored queues with their master here", len(rings))
    page.gauge(
        "warren_queues_without_synchronised_mirror",
        "Mirrored queues whose only good copy is the master's",
        sum(ring.is_critical for ring in rings),
    )
    _counts(context, page)
    fork_metrics(context.engine, page)
    await _salvage(context, page)


def _lag_seconds(page: Page, rings: list[Ring], per_object: bool) -> None:
    """Times are not added up: of all mirrors, the one that lags most."""
    name = "warren_mirror_lag_seconds"
    page.head(name, "gauge", "Time since the first operation that a mirror lacks was made")
    known = [
        (mirror["lag_seconds"], {**ring.labels, "node": mirror["node"]})
        for ring in rings
        for mirror in ring.mirrors
        if mirror["lag_seconds"] is not None
    ]
    if not per_object:
        page.value(name, max((seconds for seconds, _ in known), default=0))
    for seconds, labels in known if per_object else ():
        page.value(name, seconds, labels)


def _counts(context: Context, page: Page) -> None:
    counts = context.events.counts
    page.head("warren_promotions_total", "counter", "Queues of which this node became the master")
    for reason, event in _PROMOTIONS.items():
        page.value("warren_promotions_total", counts[event], {"reason": reason})
    page.counter(
        "warren_mirrors_synchronised_total",
        "Mirrors that got all they lacked",
        counts["queue.synchronised"],
    )


async def _salvage(context: Context, page: Page) -> None:
    notes: list[dict[str, Any]] = []
    if context.salvage is not None:
        notes = await asyncio.to_thread(context.salvage.notes)
    page.gauge("warren_salvage_files", "Files of what was put aside", len(notes))
    page.gauge(
        "warren_salvage_messages",
        "Messages in them, as far as they could be counted",
        sum(note["messages"] for note in notes if isinstance(note.get("messages"), int)),
    )

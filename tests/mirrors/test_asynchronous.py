"""Confirms before the mirrors have it, with a bound; copies in some hours only, or none at all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_clients import NODES, PERSISTENT, Clients, counts, drain, eventually, publish
from rings import api, await_ring, await_that, clear_policy, mirror, queue_row, ring_of

from warren.engine.ring_changes import CAUSES, HAS_ALL
from warren.testing import Cluster

LONG_S = 60.0
ASYNC = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-replication": "async"}


@pytest.fixture
def early(cluster: Cluster, name: str) -> Iterator[str]:
    """A queue on all nodes that confirms early; its master is on the first."""
    queue = f"early.{name}"
    mirror(cluster, r"^early\.", ASYNC)
    yield queue
    clear_policy(cluster, r"^early\.")


def _confirm_some(channel: Any, queue: str, count: int, within_s: float) -> list[bytes]:
    """Publish without waiting; the bodies that were confirmed by then."""
    confirmed: set[int] = set()

    def note(frame: Any) -> None:
        method = frame.method
        tags = range(1, method.delivery_tag + 1) if method.multiple else (method.delivery_tag,)
        confirmed.update(tags)

    channel._impl.confirm_delivery(note)
    bodies = [b"alone-%d" % number for number in range(count)]
    for body in bodies:
        channel._impl.basic_publish("", queue, body, PERSISTENT)
    end = time.monotonic() + within_s
    while time.monotonic() < end and len(confirmed) < count:
        channel.connection.process_data_events(0.05)
    return [bodies[tag - 1] for tag in sorted(confirmed)]


def test_what_a_lost_master_has_confirmed_comes_back(
    cluster: Cluster, clients: Clients, early: str
) -> None:
    """It is missing while the master is away, and is published again, marked, when it returns."""
    channel = clients.confirming(1)
    channel.queue_declare(early, durable=True)
    await_ring(cluster, early, master=1, synchronised=NODES)
    publish(channel, early, [b"everywhere"])
    alone = clients.channel(1)
    cluster.isolate(1)
    confirmed = _confirm_some(alone, early, 50, within_s=0.7)
    assert confirmed, "nothing was confirmed by the master alone"
    await_that(
        _as_others_see_it(cluster), early, lambda ring: ring.master != cluster.nodes[0], "moved"
    )
    cluster.heal()
    cluster.wait_until_ready()
    await_ring(cluster, early, synchronised=NODES)
    eventually(lambda: counts(clients.channel(2), early)[0] >= 1 + len(confirmed), True, LONG_S)
    channel = clients.channel(2)
    found: dict[bytes, Any] = {}
    while (got := channel.basic_get(early, auto_ack=True))[0] is not None:
        found[got[2]] = got[1].headers
    assert set(found) >= {b"everywhere", *confirmed}
    assert all("x-salvaged" in found[body] for body in confirmed)
    assert not (found[b"everywhere"] or {}).get("x-salvaged")
    eventually(lambda: api(cluster, 2, "GET", "/warren/salvage"), [], LONG_S)


def _as_others_see_it(cluster: Cluster) -> Any:
    """The cluster as the nodes besides the first see it."""

    return SimpleNamespace(
        nodes=cluster.nodes,
        running=[number for number in cluster.running if number != 1],
        management_url=cluster.management_url,
    )


def test_no_more_is_confirmed_than_may_be_lost(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    queue, pattern = f"few.{name}", r"^few\."
    mirror(cluster, pattern, {**ASYNC, "ha-max-lag-messages": 7, "ha-max-lag-ms": 60_000})
    channel = clients.confirming(1)
    channel.queue_declare(queue, durable=True)
    ring = await_ring(cluster, queue, master=1, synchronised=NODES)
    # From the first confirm on it serves for certain.
    publish(channel, queue, [b"everywhere"])
    assert ring.shown["replication"] == "async"
    assert ring.shown["unreplicated_confirms_max"] == 7
    assert any("up to 7 of the last messages" in line for line in ring.shown["explain"])
    alone = clients.channel(1)
    cluster.isolate(1)
    try:
        assert 1 <= len(_confirm_some(alone, queue, 50, within_s=0.7)) <= 7
    finally:
        cluster.heal()
    cluster.wait_until_ready()
    clear_policy(cluster, pattern)


def test_copies_keep_to_their_hours(cluster: Cluster, clients: Clients, name: str) -> None:
    """Outside of them the master is alone, and says so; inside, mirrors get what they missed."""
    queue, pattern = f"hours.{name}", r"^hours\."
    policy = {"ha-mode": "all", "ha-sync-mode": "automatic"}
    mirror(cluster, pattern, {**policy, "ha-replication-window": _hours_from_now(6)})
    channel = clients.confirming(1)
    channel.queue_declare(queue, durable=True)
    ring = await_ring(cluster, queue, master=1, replicas=NODES, synchronised=[1])
    assert any("not protected" in line for line in ring.shown["explain"])
    publish(channel, queue, [b"%d" % number for number in range(300)])
    time.sleep(1.0)
    ring = await_ring(cluster, queue, master=1, synchronised=[1])
    mirror(cluster, pattern, {**policy, "ha-replication-window": _hours_from_now(-2)})
    ring = await_ring(cluster, queue, master=1, synchronised=NODES)
    assert any("copied from" in line for line in ring.shown["explain"])
    seen = [
        (event["event"], event["details"].get("node"), event["details"].get("cause"))
        for event in api(cluster, 1, "GET", "/warren/events")
        if event["details"].get("name") == queue
    ]
    assert "queue.copying_hours_begin" in [event for event, _, _ in seen]
    for other in cluster.nodes[1:]:
        assert ("queue.unsynchronised", other, CAUSES["hours"]) in seen
        assert ("queue.synchronised", other, HAS_ALL) in seen
    cluster.kill(1)
    eventually(lambda: counts(clients.channel(2), queue), (300, 0), LONG_S)
    assert drain(clients.channel(2), queue) == [b"%d" % number for number in range(300)]
    cluster.start_all()
    cluster.wait_until_ready()
    clear_policy(cluster, pattern)


def _hours_from_now(first: int) -> str:
    """Four hours that begin so many hours from now."""
    hour = time.localtime().tm_hour + first
    return f"{hour % 24:02}:00-{(hour + 4) % 24:02}:00"


def test_copies_can_be_forbidden(cluster: Cluster, clients: Clients, name: str) -> None:
    queue, pattern = f"ha.{name}", "^ha.name"
    clients.channel(1).queue_declare(queue, durable=True)
    await_ring(cluster, queue, synchronised=NODES)
    body = {"pattern": pattern, "definition": {"ha-replicate": False}, "apply-to": "queues"}
    api(cluster, 2, "PUT", "/operator-policies/%2F/none", body)
    try:
        eventually(lambda: len(_replicas(cluster, queue)), 1, LONG_S)
        assert queue_row(cluster, 3, queue)["effective_policy_definition"]["ha-replicate"] is False
    finally:
        api(cluster, 2, "DELETE", "/operator-policies/%2F/none")
    await_ring(cluster, queue, synchronised=NODES)


def _replicas(cluster: Cluster, queue: str) -> list[str]:
    ring = ring_of(cluster, queue)
    return [] if ring is None else ring.replicas

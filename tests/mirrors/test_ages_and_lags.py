"""How old messages are on all replicas, whoever is the master; and how far a mirror lags."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from cluster_clients import Clients, eventually, publish
from rings import api, await_ring, mirror, queue_row

from warren.testing import Cluster


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster) -> Iterator[None]:
    yield
    for node in cluster.running:
        with contextlib.suppress(ProcessLookupError):
            cluster.resume(node)
    cluster.start_all()
    cluster.wait_until_ready()


def came_ms(cluster: Cluster, node: int, name: str) -> int | None:
    told: int | None = queue_row(cluster, node, name).get("oldest_message_arrived_at")
    return told


def replica(cluster: Cluster, node: int, name: str, of: int) -> dict[str, Any]:
    rows = api(cluster, node, "GET", f"/queues/%2F/{name}/mirrors")["replicas"]
    found: dict[str, Any] = next(row for row in rows if row["node"] == cluster.nodes[of - 1])
    return found


def is_about(told_ms: int | None, came: int) -> bool:
    """To a second of a mark, and whole seconds in records."""
    return told_ms is not None and -2100 <= told_ms - came <= 200


def test_the_age_of_messages_outlives_masters(cluster: Cluster, clients: Clients, ha: str) -> None:
    """Those that mirrors had with the ring, and those that a copy has brought."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=(1, 2, 3))
    publish(clients.confirming(1), ha, [b"first"])
    came = came_ms(cluster, 1, ha)
    assert came is not None
    # The third begins anew with a copy of what is there.
    api(cluster, 1, "PUT", f"/policies/%2F/{ha}", two_only(cluster, ha))
    await_ring(cluster, ha, master=1, synchronised=(1, 2))
    api(cluster, 1, "DELETE", f"/policies/%2F/{ha}")
    await_ring(cluster, ha, master=1, synchronised=(1, 2, 3))
    cluster.kill(1)
    await_ring(cluster, ha, master=2, synchronised=(2, 3))
    eventually(lambda: is_about(came_ms(cluster, 2, ha), came))
    cluster.start(1)
    await_ring(cluster, ha, master=2, synchronised=(1, 2, 3))
    cluster.kill(2)
    await_ring(cluster, ha, synchronised=(1, 3))
    eventually(lambda: is_about(came_ms(cluster, 3, ha), came))


def two_only(cluster: Cluster, name: str) -> dict[str, object]:
    nodes = {"ha-mode": "nodes", "ha-params": list(cluster.nodes[:2]), "ha-sync-mode": "automatic"}
    return {"pattern": f"^{name}$", "definition": nodes, "apply-to": "queues", "priority": 9}


def test_a_mirror_that_lags_says_by_how_much(cluster: Cluster, clients: Clients, name: str) -> None:
    """It is suspended for less time than it would be put out of the ring."""
    definition: dict[str, object] = {"ha-mode": "all", "ha-max-lag": 60_000}
    mirror(cluster, f"^{name}$", definition | {"ha-sync-mode": "automatic"})
    channel = clients.channel(1)
    channel.queue_declare(name, durable=True)
    await_ring(cluster, name, master=1, synchronised=(1, 2, 3))
    # The operation that its ring begins with may still be on its way.
    eventually(lambda: replica(cluster, 1, name, 3)["lag_messages"], 0)
    shown = replica(cluster, 1, name, 3)
    assert (shown["role"], shown["lag_messages"], shown["lag_bytes"]) == ("mirror", 0, 0)
    assert shown["lag_seconds"] == 0
    assert shown["applied"] == shown["position"]
    assert shown["since"] is not None
    cluster.pause(3)
    try:
        for _ in range(20):
            channel.basic_publish("", name, b"x" * 1000)
        channel.connection.process_data_events(0.1)

        def lags() -> bool:
            row = replica(cluster, 1, name, 3)
            return bool(row["lag_messages"] >= 20 and (row["lag_seconds"] or 0) >= 1)

        eventually(lags)
        row = replica(cluster, 1, name, 3)
        assert 20 * 1000 <= row["lag_bytes"] <= 30 * 1000
        assert row["lag_seconds"] < 30
        # What the second one has on its disk, not all have: it is not applied.
        other = replica(cluster, 1, name, 2)
        assert other["applied"] <= other["position"]
        shown_by_ctl = cluster.ctl(1, "mirrors", name)
        assert "lag_seconds" in shown_by_ctl
    finally:
        cluster.resume(3)
    eventually(lambda: replica(cluster, 1, name, 3)["lag_messages"] == 0)
    assert replica(cluster, 1, name, 3)["lag_bytes"] == 0

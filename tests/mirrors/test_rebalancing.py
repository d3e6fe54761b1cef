"""Masters are spread over the nodes: list B, 12."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from cluster_clients import Clients, drain, eventually, publish
from rings import Refused, api, await_ring, make_master, mirror, ring_of

from warren.testing import Cluster, CtlFailed

LONG_S = 60.0
PLACE = "/rebalance/queues"
FULL = {"1", "3"}


@pytest.fixture
def queues(cluster: Cluster, clients: Clients, ha: str) -> Iterator[list[str]]:
    """Five queues of the first node, two of them with messages."""
    names = [f"{ha}.{i}" for i in range(5)]
    for name in names:
        clients.channel(1).queue_declare(name, durable=True)
        await_ring(cluster, name, synchronised=(1, 2, 3))
        make_master(cluster, name, 1)
    for name in names:
        if name[-1] in FULL:
            publish(clients.confirming(2), name, [b"%d" % i for i in range(20)])
    yield names
    for name in names:
        api(cluster, 1, "DELETE", f"/queues/%2F/{quote(name, safe='')}")


def masters(cluster: Cluster, queues: list[str]) -> dict[str, str | None]:
    rings = {name: ring_of(cluster, name) for name in queues}
    return {name: None if ring is None else ring.master for name, ring in rings.items()}


def is_spread(cluster: Cluster, queues: list[str]) -> bool:
    found = masters(cluster, queues)
    stayed = all(found[name] == cluster.nodes[0] for name in queues if name[-1] in FULL)
    return stayed and sorted(Counter(found.values()).values()) == [1, 2, 2]


def test_masters_are_spread_and_a_second_one_is_refused(
    cluster: Cluster, clients: Clients, queues: list[str]
) -> None:
    # A consumer holds what it was given through all of it: a handover redelivers nothing.
    held = clients.channel(2)
    method, _, body = held.basic_get(queues[1])
    assert body == b"0"
    planned = api(cluster, 2, "POST", PLACE, {"dry_run": True})
    assert len(planned) == 3
    assert {move["name"][-1] for move in planned} == {"0", "2", "4"}
    assert set(masters(cluster, queues).values()) == {cluster.nodes[0]}
    # One that rests for an hour after its first move is surely under way.
    api(cluster, 3, "POST", PLACE, {"pause_s": 3600})
    eventually(lambda: api(cluster, 1, "GET", PLACE)["moved"], 1, LONG_S)
    for node in cluster.numbers:
        with pytest.raises(Refused, match="rebalance_in_progress"):
            api(cluster, node, "POST", PLACE, {})
    with pytest.raises(CtlFailed, match="under way"):
        cluster.ctl(2, "rebalance")
    cluster.ctl(2, "rebalance", "--cancel")
    assert api(cluster, 1, "GET", PLACE)["state"] == "idle"
    with pytest.raises(Refused):
        api(cluster, 1, "DELETE", PLACE)
    said = cluster.ctl(1, "rebalance", "all")
    assert all(name in said for name in cluster.nodes)
    assert is_spread(cluster, queues)
    shown = api(cluster, 2, "GET", PLACE)
    assert shown["failed"] == 0
    held.basic_ack(method.delivery_tag)
    assert drain(clients.channel(3), queues[1]) == [b"%d" % i for i in range(1, 20)]


def test_masters_are_spread_at_a_time(
    cluster: Cluster, clients: Clients, queues: list[str]
) -> None:
    del clients
    far = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    cluster.ctl(2, "rebalance", "--at", far.isoformat())
    for node in cluster.numbers:
        eventually(lambda n=node: api(cluster, n, "GET", PLACE)["appointment"] is not None)  # type: ignore[misc]
    assert set(masters(cluster, queues).values()) == {cluster.nodes[0]}
    near = datetime.datetime.now(datetime.UTC)
    cluster.ctl(2, "rebalance", "--at", near.isoformat())
    eventually(lambda: is_spread(cluster, queues), within_s=LONG_S)
    assert api(cluster, 2, "GET", PLACE)["appointment"] is None


def test_an_appointment_waits_for_what_is_under_way(
    cluster: Cluster, clients: Clients, queues: list[str]
) -> None:
    del clients
    api(cluster, 3, "POST", PLACE, {"pause_s": 4})
    eventually(lambda: api(cluster, 1, "GET", PLACE)["moved"], 1, LONG_S)
    now = datetime.datetime.now(datetime.UTC)
    cluster.ctl(2, "rebalance", "--at", now.isoformat(), "--strategy", "round-robin")
    eventually(lambda: api(cluster, 1, "GET", PLACE)["strategy"], "round-robin", LONG_S)
    eventually(lambda: api(cluster, 1, "GET", PLACE)["state"], "idle", LONG_S)
    assert api(cluster, 2, "GET", PLACE)["appointment"] is None
    assert sorted(Counter(masters(cluster, queues).values()).values()) == [1, 2, 2]


def test_masters_are_spread_by_timer() -> None:
    every = {"cluster_rebalance": "timer", "cluster_rebalance_interval": "2"}
    with Cluster(3, config={**every, "cluster_rebalance_strategy": "round-robin"}) as cluster:
        mirror(cluster, "^", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        names = [f"q{number}" for number in range(3)]
        with Clients(cluster) as clients:
            for name in names:
                clients.channel(1).queue_declare(name, durable=True)
        for name in names:
            await_ring(cluster, name, synchronised=(1, 2, 3))
        wanted = dict(zip(names, cluster.nodes, strict=True))
        eventually(lambda: masters(cluster, names), wanted, LONG_S)
        # Again and again: what an operator moves is not so for long.
        make_master(cluster, "q0", 2)
        eventually(lambda: masters(cluster, names), wanted, LONG_S)
        seen = [row["event"] for row in api(cluster, 1, "GET", "/warren/events")]
        seen += [row["event"] for row in api(cluster, 2, "GET", "/warren/events")]
        seen += [row["event"] for row in api(cluster, 3, "GET", "/warren/events")]
        assert seen.count("rebalance.ended") >= 2


@pytest.mark.parametrize(
    "strategy", ["min-masters", "min-messages", "min-connections", "round-robin", "random"]
)
def test_strategies(cluster: Cluster, queues: list[str], strategy: str) -> None:
    """Each of them by command; what it plans is what unit/test_rebalancing.py is about."""
    cluster.ctl(2, "rebalance", "--strategy", strategy, "--queue-pattern", queues[0][:-2])
    shown = api(cluster, 3, "GET", PLACE)
    assert (shown["strategy"], shown["state"], shown["failed"]) == (strategy, "idle", 0)
    assert shown["moved"] == shown["planned"]
    found = masters(cluster, queues)
    if strategy in {"min-masters", "round-robin"}:
        assert len(set(found.values())) == 3
    elif strategy == "min-messages":
        assert len({found[name] for name in queues if name[-1] in FULL}) == 2


def test_what_makes_no_sense_is_refused(cluster: Cluster) -> None:
    for body in (
        {"strategy": "best"},
        {"at": "soon"},
        {"pause_s": -1},
        {"queue_pattern": "("},
        {"dryrun": True},
    ):
        with pytest.raises(Refused, match="400"):
            api(cluster, 1, "POST", PLACE, body)

"""Replicas that lack messages: how they come to have them, and what becomes of them if not."""

from __future__ import annotations

import contextlib
import json
import re
import time
from base64 import b64decode
from collections.abc import Iterator
from urllib.parse import quote

import pika
import pytest
from cluster_clients import Clients, counts, drain, eventually, is_gone, publish
from rings import (
    Refused,
    Ring,
    api,
    await_ring,
    await_that,
    clear_policy,
    mirror,
    queue_row,
    ring_of,
)

from warren.engine.ring_changes import UNCLEAN
from warren.testing import Cluster, CtlFailed

LONG_S = 60.0
NODES = (1, 2, 3)


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster, name: str) -> Iterator[None]:
    """All nodes run again after every test, and its policy is gone."""
    yield
    cluster.start_all()
    cluster.wait_until_ready()
    with contextlib.suppress(Refused):
        clear_policy(cluster, f"^{name}$")


def mirrored_on(
    cluster: Cluster, clients: Clients, name: str, nodes: tuple[int, ...], **more: object
) -> None:
    """A queue with its master on the first of these nodes."""
    names = [cluster.nodes[n - 1] for n in nodes]
    definition: dict[str, object] = {"ha-mode": "nodes", "ha-params": names}
    mirror(cluster, f"^{name}$", definition | {key.replace("_", "-"): more[key] for key in more})
    clients.channel(nodes[0]).queue_declare(name, durable=True)
    await_ring(cluster, name, master=nodes[0], synchronised=nodes)


def act(cluster: Cluster, node: int, queue: str, action: str) -> None:
    api(cluster, node, "POST", f"/queues/%2F/{quote(queue, safe='')}/actions", {"action": action})


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % i for i in range(first, last)]


@pytest.mark.parametrize("how", ["ack", "ttl"])
def test_a_mirror_catches_up_when_what_it_lacks_is_gone(
    cluster: Cluster, clients: Clients, name: str, how: str
) -> None:
    """List B, 4."""
    more: dict[str, object] = {"message-ttl": 6_000} if how == "ttl" else {}
    mirrored_on(cluster, clients, name, (1, 2), ha_sync_mode="manual", **more)
    cluster.kill(2)
    await_ring(cluster, name, synchronised=(1,))
    channel = clients.confirming(3)
    publish(channel, name, [b"lacked"])
    method = None
    if how == "ack":
        method, _, _ = channel.basic_get(name)
        assert method is not None
    cluster.start(2)
    # It has come back with nothing to hear of what was there before, or hears all of it at once
    # since the log still has it: either is right, as long as what it says is true.
    await_that(cluster, name, lambda ring: len(ring.replicas) == 2, "both replicas")
    publish(channel, name, [b"more"])
    if method is not None:
        channel.basic_ack(method.delivery_tag)
    await_ring(cluster, name, synchronised=(1, 2))
    cluster.kill(1)
    expected = [b"more"] if how == "ack" else []
    other = clients.channel(3)
    eventually(lambda: counts(clients.channel(3), name)[0], len(expected), LONG_S)
    assert drain(other, name) == expected


def _has_begun_to_follow(ring: Ring) -> bool:
    rows = ring.shown["replicas"]
    return len(rows) == 2 and rows[1]["position"] == rows[0]["position"] > 0


@pytest.mark.parametrize("how", ["ack", "ttl"])
def test_a_mirror_that_lacks_messages_says_so_until_they_are_gone(
    cluster: Cluster, clients: Clients, name: str, how: str
) -> None:
    """List B, 4: a mirror that comes later than a message, which no log has for it."""
    clients.channel(1).queue_declare(name, durable=True)
    channel = clients.confirming(3)
    expiration = "8000" if how == "ttl" else None
    lacked = pika.BasicProperties(delivery_mode=2, expiration=expiration)
    channel.basic_publish("", name, b"lacked", lacked, mandatory=True)
    method = channel.basic_get(name)[0] if how == "ack" else None
    both = {"ha-mode": "nodes", "ha-params": cluster.nodes[:2], "ha-sync-mode": "manual"}
    mirror(cluster, f"^{name}$", both)
    # It hears what is published from now on, and lacks what was there when it began to.
    await_that(cluster, name, _has_begun_to_follow, "a learner that follows")
    publish(channel, name, [b"more"])
    await_ring(cluster, name, master=1, replicas=(1, 2), synchronised=(1,))
    if method is not None:
        channel.basic_ack(method.delivery_tag)
    await_ring(cluster, name, master=1, synchronised=(1, 2))
    cluster.kill(1)
    eventually(lambda: counts(clients.channel(3), name)[0], 1, LONG_S)
    assert drain(clients.channel(3), name) == [b"more"]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_restarts_without_synchronising(
    cluster: Cluster, clients: Clients, name: str, how: str
) -> None:
    """List B, 5: both replicas in turn, and nobody has said `sync_queue`."""
    mirrored_on(cluster, clients, name, (1, 2), ha_sync_mode="manual")
    publish(clients.confirming(3), name, bodies(0, 100))
    for node in (1, 2):
        if how == "stop":
            cluster.restart(node)
        else:
            cluster.kill(node)
            cluster.start(node)
    eventually(lambda: not is_gone(clients.channel(3), name), within_s=LONG_S)
    assert drain(clients.channel(3), name) == bodies(0, 100)


def test_a_returning_mirror_is_synchronised_by_hand(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """List B, 5: with `sync_queue` between; what is unacknowledged is kept."""
    mirrored_on(cluster, clients, name, (1, 2), ha_sync_mode="manual")
    channel = clients.confirming(3)
    publish(channel, name, bodies(0, 100))
    held = clients.channel(3)
    assert held.basic_get(name)[2] == b"0"
    for node, other in ((1, 2), (2, 1)):
        cluster.kill(node)
        await_ring(cluster, name, master=other, synchronised=(other,))
        cluster.start(node)
        await_that(cluster, name, lambda ring: len(ring.replicas) == 2, "both replicas")
        act(cluster, 3, name, "sync")
        await_ring(cluster, name, synchronised=(1, 2))
    held.connection.close()
    eventually(lambda: counts(clients.channel(3), name)[0], 100, LONG_S)
    assert drain(clients.channel(3), name) == bodies(0, 100)


#: Whoever says that a failure must lose nothing does not want a stop to.
WHEN_SYNCED = {"ha_promote_on_failure": "when-synced", "ha_promote_on_shutdown": "always"}


@pytest.mark.parametrize(("how", "more"), [("kill", {}), ("stop", {}), ("stop", WHEN_SYNCED)])
def test_the_queue_waits_for_a_synchronised_replica(
    cluster: Cluster, clients: Clients, name: str, how: str, more: dict[str, str]
) -> None:
    """List B, 5 and 7: by default a replica that lacks messages is not promoted."""
    first, second, third = _leader_last(cluster)
    mirrored_on(cluster, clients, name, (first, second), ha_sync_mode="manual", **more)
    _lose_master_of_two(cluster, clients, name, how, (first, second, third))

    def has_no_master() -> bool:
        ring = ring_of(cluster, name)
        return ring is None or ring.master is None

    eventually(has_no_master, within_s=LONG_S)
    for _ in range(20):
        assert has_no_master()
        assert is_gone(clients.channel(third), name)
        time.sleep(0.25)
    cluster.start(first)
    eventually(lambda: not is_gone(clients.channel(third), name), within_s=LONG_S)
    assert drain(clients.channel(third), name) == bodies(0, 100)


def _leader_last(cluster: Cluster) -> tuple[int, int, int]:
    """The nodes; the one that leads the agreement is the last."""
    said = [
        line
        for n in (1, 2, 3)
        for line in cluster.log(n).splitlines()
        if " leads the agreement " in line
    ]
    leader = int(re.findall(r"node(\d)@localhost leads", max(said))[-1])
    first, second = (n for n in (1, 2, 3) if n != leader)
    return first, second, leader


def _lose_master_of_two(
    cluster: Cluster, clients: Clients, name: str, how: str, nodes: tuple[int, int, int]
) -> None:
    """The second node is back without having been synchronised when the first one goes."""
    first, second, third = nodes
    channel = clients.confirming(third)
    publish(channel, name, bodies(0, 10))
    cluster.kill(second)
    await_ring(cluster, name, master=first, synchronised=(first,))
    publish(channel, name, bodies(10, 100))
    # The third must stay for the majority, and lead: the second returns to it, held back from its
    # master, so that it cannot hear of what it lacks.
    cluster.partition(first, second)
    cluster.start(second)
    if how == "kill":
        cluster.kill(first)
    else:
        cluster.stop(first)
    cluster.heal()


@pytest.mark.parametrize(
    ("how", "key"), [("kill", "ha_promote_on_failure"), ("stop", "ha_promote_on_shutdown")]
)
def test_a_replica_that_lacks_messages_is_promoted_if_asked_for(
    cluster: Cluster, clients: Clients, name: str, how: str, key: str
) -> None:
    """List B, 5 and 7: `always` means what it says."""
    first, second, third = _leader_last(cluster)
    pair = (first, second)
    mirrored_on(cluster, clients, name, pair, ha_sync_mode="manual", **{key: "always"})
    _lose_master_of_two(cluster, clients, name, how, (first, second, third))
    await_ring(cluster, name, master=second)
    eventually(lambda: not is_gone(clients.channel(third), name), within_s=LONG_S)
    found = drain(clients.channel(third), name)
    assert found == bodies(0, len(found))
    assert len(found) < 100
    channel = clients.confirming(third)
    publish(channel, name, [b"new"])
    cluster.start(first)
    await_that(cluster, name, lambda ring: len(ring.replicas) == 2, "both replicas")
    act(cluster, third, name, "sync")
    await_ring(cluster, name, master=second, synchronised=pair)
    assert drain(channel, name) == [b"new"]
    _check_told(cluster, name, second)
    # All of the copy that was given up: which of it the promoted one had, nobody can tell for sure.
    _bring_back(cluster, clients, name, first, bodies(0, 100))


def _check_told(cluster: Cluster, name: str, promoted: int) -> None:
    """That it was unclean, and why; nobody says of the promoted one that it had everything."""
    lines = cluster.ctl(promoted, "events", "--json", "--queue", name).splitlines()
    rows = [json.loads(line) for line in lines]
    told = {row["event"]: row["details"] for row in rows}
    assert told["queue.promoted_unclean"]["cause"] == UNCLEAN
    assert told["queue.promoted"]["cause"] == "unclean"
    since = [row["event"] for row in rows].index("queue.promoted_unclean")
    ours = [row["details"] for row in rows[since:] if row["event"] == "queue.synchronised"]
    causes = [it["cause"] for it in ours if it["node"] == cluster.nodes[promoted - 1]]
    assert causes == [UNCLEAN]


def _bring_back(
    cluster: Cluster, clients: Clients, name: str, node: int, expected: list[bytes]
) -> None:
    """What was cut off is kept on the node that had it, and comes back when it is asked for."""
    (piece,) = [row for row in api(cluster, 1, "GET", "/warren/salvage") if row["queue"] == name]
    assert (piece["node"], piece["messages"]) == (cluster.nodes[node - 1], len(expected))
    assert "dies now" in cluster.ctl(1, "explain", name)
    told = api(cluster, node, "GET", "/warren/events?names=queue.salvaged")[-1]["details"]
    assert (told["file"], told["messages"]) == (piece["file"], len(expected))
    assert told["cause"] == piece["reason"] == "the cluster has gone on without them"
    assert piece["file"] in cluster.ctl(2, "salvage", "list")
    shown = json.loads(cluster.ctl(3, "salvage", "show", piece["file"], "--json"))
    assert [row["payload"].encode() for row in shown] == expected[:10]
    exported = cluster.ctl(1, "salvage", "export", piece["file"]).splitlines()
    assert [b64decode(json.loads(line)["payload"]) for line in exported] == expected
    said = cluster.ctl(2, "salvage", "republish", piece["file"])
    assert f"{len(expected)} messages" in said
    channel = clients.channel(3)
    _, properties, body = channel.basic_get(name, auto_ack=True)
    assert body == expected[0]
    assert properties.headers == {"x-salvaged": piece["file"]}
    assert drain(channel, name) == expected[1:]
    with pytest.raises(CtlFailed, match="nothing is kept"):
        cluster.ctl(2, "salvage", "drop", piece["file"])


def test_messages_in_memory_only_are_copied_too(
    cluster: Cluster, clients: Clients, name: str
) -> None:
    """A queue that has them gets mirrors."""
    clients.channel(1).queue_declare(name, durable=True)
    channel = clients.confirming(2)
    for body in bodies(0, 300):
        channel.basic_publish("", name, body)
    mirror(cluster, f"^{name}$", {"ha-mode": "all", "ha-sync-mode": "automatic"})
    await_ring(cluster, name, synchronised=NODES)
    cluster.kill(1)
    await_that(cluster, name, lambda ring: ring.master in cluster.nodes[1:], "another master")
    eventually(lambda: counts(clients.channel(2), name)[0], 300, LONG_S)
    assert drain(clients.channel(3), name) == bodies(0, 300)


#: A copy of 2 MB takes some ten seconds: it is surely under way while it is looked at.
SLOW = {"mirroring_sync_max_throughput": "200KB"}
SLOW_BYTES_PER_S, LARGEST_PIECE_BYTES = 200 * 1024, 101_000


def test_a_copy_can_be_stopped(name: str) -> None:
    """List B, 6."""
    with Cluster(3, config=SLOW) as cluster, Clients(cluster) as clients:
        # Without a policy at first: what comes before the ring is not in its log, and is copied.
        clients.channel(1).queue_declare(name, durable=True)
        channel, body = clients.confirming(2), b"x" * 100_000
        # What was there before and is gone is no part of it.
        publish(channel, name, bodies(100, 130))
        assert len(drain(clients.channel(1), name)) == 30
        for i in range(20):
            publish(channel, name, [b"%d " % i + body])
        both = {"ha-mode": "nodes", "ha-params": cluster.nodes[:2], "ha-sync-mode": "manual"}
        mirror(cluster, f"^{name}$", {**both, "ha-sync-batch-size": 1})
        await_ring(cluster, name, replicas=(1, 2), synchronised=(1,))
        eventually(lambda: _lacks(cluster, name), 20)
        cluster.ctl(3, "sync_queue", "--no-wait", name)
        ring = await_that(cluster, name, lambda it: bool(_bytes_copied(it)), "a copy under way")
        assert _bytes_copied(ring) < 2_000_000
        told = r"\t(\d+)/20 messages, \d\.\d MB(, \d+ s left)?"
        eventually(lambda: re.search(told, cluster.ctl(2, "mirrors", name)))
        await_that(cluster, name, lambda it: _bytes_copied(it) > 300_000, "some of the copy")
        publish(channel, name, [b"meanwhile"])
        # Publishing and consuming go on: what is taken is not copied any more.
        taken = clients.channel(3).basic_get(name, auto_ack=True)[2]
        assert taken is not None
        assert taken.startswith(b"0 ")
        assert cluster.ctl(2, "-q", "cancel_sync_queue", name) == ""
        assert cluster.ctl(2, "-q", "cancel_sync_queue", name) == "not_syncing\n"
        with pytest.raises(Refused, match="not_syncing"):
            act(cluster, 3, name, "cancel_sync")
        ring = await_ring(cluster, name, replicas=(1, 2), synchronised=(1,))
        # What has arrived is kept.
        assert 0 < _lacks(cluster, name) < 18
        # Nothing is shown as under way any more.
        assert [row["sync"] for row in ring.shown["replicas"]] == [None, None]
        assert queue_row(cluster, 1, name)["state"] == "running"
        publish(channel, name, [b"afterwards"])
        act(cluster, 3, name, "sync")
        await_ring(cluster, name, replicas=(1, 2), synchronised=(1, 2))
        assert _syncs_told(cluster, name) == ["started", "cancelled", "started", "done"]
        cluster.kill(1)
        eventually(lambda: not is_gone(clients.channel(3), name), within_s=LONG_S)
        found = drain(clients.channel(3), name)
        assert [it.split()[0] for it in found] == [*bodies(1, 20), b"meanwhile", b"afterwards"]


def _syncs_told(cluster: Cluster, name: str) -> list[str]:
    """What the events of the master say of copies to the second node."""
    events = api(cluster, 3, "GET", "/warren/events?names=queue.sync_")
    assert isinstance(events, list)
    told = [event["details"] for event in events]
    assert {(row["name"], row["node"]) for row in told} == {(name, cluster.nodes[1])}
    for row in told:
        # The first piece is sent at once, each other one when those before it are paid for.
        paid = row.get("bytes", 0) - LARGEST_PIECE_BYTES
        assert row.get("took_ms", 0) >= paid * 1000 // SLOW_BYTES_PER_S, row
    return [row.get("how", "started") for row in told]


def _lacks(cluster: Cluster, name: str) -> int:
    ring = ring_of(cluster, name)
    assert ring is not None
    return int(ring.shown["replicas"][1]["lacks_messages"] or 0)


def _bytes_copied(ring: Ring) -> int:
    return sum(row["sync"]["bytes_done"] for row in ring.shown["replicas"] if row["sync"])


@pytest.mark.parametrize("strategy", ["full", "event"])
def test_strategies(cluster: Cluster, clients: Clients, name: str, strategy: str) -> None:
    """A mirror that was away gets everything anew, or nothing but what comes."""
    clients.channel(1).queue_declare(name, durable=True)
    channel = clients.confirming(3)
    publish(channel, name, bodies(0, 10))
    names = list(cluster.nodes[:2])
    how = {"ha-mode": "nodes", "ha-params": names, "ha-sync-mode": "automatic"}
    mirror(cluster, f"^{name}$", {**how, "ha-sync-strategy": strategy})
    if strategy == "full":
        await_ring(cluster, name, synchronised=(1, 2))
    else:
        await_ring(cluster, name, replicas=(1, 2), synchronised=(1,))
        with pytest.raises(Refused, match="event"):
            act(cluster, 3, name, "sync")
        assert drain(clients.channel(3), name) == bodies(0, 10)
        await_ring(cluster, name, synchronised=(1, 2))
        publish(channel, name, bodies(0, 10))
    cluster.kill(2)
    await_ring(cluster, name, synchronised=(1,))
    publish(channel, name, bodies(10, 20))
    cluster.start(2)
    await_ring(cluster, name, synchronised=(1, 2))
    cluster.kill(1)
    eventually(lambda: not is_gone(clients.channel(3), name), within_s=LONG_S)
    assert drain(clients.channel(3), name) == bodies(0, 20)

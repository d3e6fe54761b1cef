"""One disk goes bad: the others have everything, and nothing that was confirmed is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from bad_disks import BadDisks, cut_log, flip_bit
from cluster_clients import Clients, counts, drain, eventually, is_gone, publish
from rings import api, await_ring, mirror

from warren.engine.ring_changes import CAUSES
from warren.store.start_marks import DAMAGE_MARK
from warren.testing import Cluster

LONG_S = 60.0
NODES = (1, 2, 3)
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> BadDisks:
    return BadDisks(tmp_path_factory.mktemp("disks"), len(NODES))


@pytest.fixture(scope="module")
def cluster(disks: BadDisks) -> Iterator[Cluster]:
    with Cluster(len(NODES), node_env=disks.env) as nodes:
        mirror(nodes, r"^ha\.", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        yield nodes


@pytest.fixture(autouse=True)
def _whole(cluster: Cluster, disks: BadDisks) -> Iterator[None]:
    """All disks are good and all nodes run again after every test."""
    yield
    for node in NODES:
        disks.mend(node)
    cluster.start_all()
    cluster.wait_until_ready()


@pytest.fixture
def queue(cluster: Cluster, clients: Clients, ha: str) -> str:
    """Its master is on the first node."""
    clients.channel(1).queue_declare(ha, durable=True)
    await_ring(cluster, ha, master=1, synchronised=NODES)
    return ha


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d " % i + b"x" * 200 for i in range(first, last)]


@pytest.mark.parametrize("damage", [flip_bit, cut_log])
@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_log(
    cluster: Cluster, clients: Clients, queue: str, damage: object, seed: int
) -> None:
    """The node with the damage begins anew as a mirror; it leads nobody, and lacks nothing."""
    publish(clients.confirming(2), queue, bodies(0, 500))
    cluster.kill(1)
    where = damage(cluster, 1, random.Random(seed))  # type: ignore[operator]
    publish(clients.confirming(2), queue, bodies(500, 600))
    cluster.start(1)
    ring = await_ring(cluster, queue, synchronised=NODES)
    assert ring.master != cluster.nodes[0], where
    # It is the only one for a while: what it has now, it has from the others.
    for node in (2, 3):
        cluster.kill(node)
    cluster.start_all()
    eventually(lambda: not is_gone(clients.channel(1), queue), within_s=LONG_S)
    assert drain(clients.channel(1), queue) == bodies(0, 600), where


def test_damage_that_a_node_could_tell_nobody(
    cluster: Cluster, clients: Clients, queue: str
) -> None:
    """It started without the others, wrote a checkpoint of what was left, and died."""
    published = bodies(0, 200)
    publish(clients.confirming(2), queue, published)
    for node in NODES:
        cluster.kill(node)
    spoil(cluster, 1, published[100], last=True)
    log = cluster.data_dir(1) / "log"
    before = set(log.glob("*.checkpoint"))
    cluster.start(1, wait=False)
    eventually(lambda: set(log.glob("*.checkpoint")) - before, within_s=LONG_S)
    cluster.kill(1)
    assert (log / DAMAGE_MARK).exists()
    cluster.start_all()
    await_ring(cluster, queue, synchronised=NODES)
    eventually(lambda: not (log / DAMAGE_MARK).exists(), within_s=LONG_S)
    # It is the only one for a while: what it has now, it has from the others.
    for node in (2, 3):
        cluster.kill(node)
    cluster.start_all()
    eventually(lambda: not is_gone(clients.channel(1), queue), within_s=LONG_S)
    assert drain(clients.channel(1), queue) == published


@pytest.mark.parametrize("kept", ["other", "binding", "deletion", "policy"])
def test_a_damaged_definition(cluster: Cluster, clients: Clients, ha: str, kept: str) -> None:
    """A record of the log was a definition: the node has it again from what was agreed on."""
    other, near = f"{ha}.other", f"near.{ha}"
    channel = clients.confirming(1)
    channel.exchange_declare(ha, "direct", durable=True)
    channel.queue_declare(other, durable=True)
    channel.queue_bind(other, ha, f"{ha}.key")
    channel.queue_declare(f"{ha}.gone", durable=True)
    channel.queue_delete(f"{ha}.gone")
    mirror(cluster, f"^{ha}.policy$", {"max-length": 5})
    # Its only copy is on the damaged node: it must stay as it is.
    clients.channel(2).queue_declare(near, durable=True)
    publish(clients.confirming(2), near, bodies(0, 10))
    publish(channel, other, bodies(0, 5))
    await_ring(cluster, other, synchronised=NODES)
    cluster.kill(2)
    words = {"other": other, "binding": f"{ha}.key", "deletion": f"{ha}.gone"}
    word = words.get(kept, f"^{ha}.policy").encode()
    spoil(cluster, 2, word, last=kept == "deletion")
    cluster.start(2)
    there = clients.confirming(2)
    eventually(lambda: counts(there, near)[0], 10, LONG_S)
    there.basic_publish(ha, f"{ha}.key", bodies(5, 6)[0], mandatory=True)
    assert drain(there, other) == bodies(0, 6)
    assert drain(there, near) == bodies(0, 10)
    assert is_gone(clients.channel(2), f"{ha}.gone")
    shown = [row["name"] for row in api(cluster, 2, "GET", "/policies")]
    assert f"^{ha}.policy$" in shown
    # The next number is the same everywhere: a new queue is the same queue on all nodes.
    clients.channel(2).queue_declare(f"{ha}.new", durable=True)
    await_ring(cluster, f"{ha}.new", synchronised=NODES)


def spoil(cluster: Cluster, node: int, word: bytes, last: bool) -> None:
    """Change a bit of a word in the log of a node that is down: where it stands first, or last."""
    for path in sorted((cluster.data_dir(node) / "log").glob("*.wal"), reverse=last):
        data = bytearray(path.read_bytes())
        place = data.rfind(word) if last else data.find(word)
        if place >= 0:
            data[place] ^= 1
            path.write_bytes(data)
            return
    raise AssertionError(f"{word!r} is in no segment")


@pytest.mark.parametrize("how", ["full", "half a record", "EIO"])
@pytest.mark.parametrize("node", [1, 3])
def test_a_disk_that_takes_nothing(
    cluster: Cluster, clients: Clients, disks: BadDisks, queue: str, how: str, node: int
) -> None:
    """Master or mirror cannot write: it goes, the others go on, and every publish is answered."""
    channel = clients.confirming(2)
    publish(channel, queue, bodies(0, 50))
    if how == "EIO":
        disks.fail_syncs(node)
    else:
        disks.fill(node, left_bytes=0 if how == "full" else 100)
    publish(channel, queue, bodies(50, 100))
    others = [it for it in NODES if it != node]
    ring = await_ring(cluster, queue, synchronised=others)
    assert ring.master != cluster.nodes[node - 1]
    eventually(lambda: node not in cluster.running, within_s=LONG_S)
    # It says why it ends, and not where that met what was under way.
    assert "failed: " in cluster.log(node)
    assert "Traceback" not in cluster.log(node)
    disks.mend(node)
    cluster.start(node)
    await_ring(cluster, queue, synchronised=NODES)
    for other in others:
        cluster.kill(other)
    cluster.start_all()
    eventually(lambda: not is_gone(clients.channel(node), queue), within_s=LONG_S)
    assert drain(clients.channel(node), queue) == bodies(0, 100)


def test_no_room_is_told_in_time(
    cluster: Cluster, clients: Clients, disks: BadDisks, queue: str
) -> None:
    """A node that sees its disk fill up has publishers wait, everywhere; nobody has to die."""
    publish(clients.confirming(2), queue, bodies(0, 10))
    disks.report_full(3)

    def alarms() -> list[bool]:
        return [row["disk_free_alarm"] for row in api(cluster, 1, "GET", "/nodes")]

    eventually(lambda: any(alarms()), within_s=LONG_S)
    # The alarm takes a moment to get around: some publishes may still go through.
    held = clients.connection(1)
    blocked: list[object] = []
    held.add_on_connection_blocked_callback(lambda *told: blocked.append(told))
    sent = [b"first"]
    channel = held.channel()
    channel.basic_publish("", queue, sent[0])
    while not blocked:
        held.process_data_events(0.1)
        sent.append(b"%d" % len(sent))
        channel.basic_publish("", queue, sent[-1])
        assert len(sent) < 300
    held.process_data_events(1.0)
    assert counts(clients.channel(2), queue)[0] < 10 + len(sent)
    disks.mend(3)
    eventually(lambda: not any(alarms()), within_s=LONG_S)
    eventually(lambda: counts(clients.channel(2), queue)[0], 10 + len(sent), LONG_S)
    assert cluster.running == list(NODES)
    assert drain(clients.channel(1), queue) == [*bodies(0, 10), *sent]


def test_a_slow_disk(cluster: Cluster, clients: Clients, disks: BadDisks, queue: str) -> None:
    """Confirms wait for it, or it leaves the ring; either way nothing is refused or lost."""
    channel = clients.confirming(2)
    publish(channel, queue, bodies(0, 5))
    disks.slow_syncs(1, 400)
    publish(channel, queue, bodies(5, 15))
    disks.mend(1)
    await_ring(cluster, queue, synchronised=NODES)
    assert drain(clients.channel(3), queue) == bodies(0, 15)


def test_a_disk_that_is_too_slow(
    cluster: Cluster, clients: Clients, disks: BadDisks, name: str
) -> None:
    """`ha-max-lag`: who makes no progress is waited for no more, and told of; then it is back."""
    policy = {"ha-mode": "all", "ha-sync-mode": "automatic", "ha-max-lag": 700}
    mirror(cluster, f"^{name}$", dict(policy))
    clients.channel(1).queue_declare(name, durable=True)
    await_ring(cluster, name, master=1, synchronised=NODES)
    leader = api(cluster, 1, "GET", "/warren/cluster/status")["agreement"]["leader"]
    # Whoever leads needs its disk to agree with others on anything.
    slow = 2 if cluster.nodes[1] != leader else 3
    channel = clients.confirming(1)
    disks.slow_syncs(slow, 4_000)
    publish(channel, name, bodies(0, 3))
    assert (slow, CAUSES["lag"]) in lag_events(cluster, name)
    publish(channel, name, bodies(3, 20))
    disks.mend(slow)
    await_ring(cluster, name, synchronised=NODES)
    cluster.kill(1)
    eventually(lambda: not is_gone(clients.channel(5 - slow), name), within_s=LONG_S)
    assert drain(clients.channel(slow), name) == bodies(0, 20)


def lag_events(cluster: Cluster, name: str) -> list[tuple[int, str]]:
    """Who was put out of sync, as the first node has seen it, and why."""
    rows = api(cluster, 1, "GET", "/warren/events?names=queue.unsynchronised")
    told = [row["details"] for row in rows if row["details"]["name"] == name]
    return [(cluster.nodes.index(it["node"]) + 1, it["cause"]) for it in told]


@pytest.mark.parametrize("offset_ms", [-24 * HOUR_MS, 5 * HOUR_MS])
def test_a_clock_that_jumps(
    cluster: Cluster, clients: Clients, disks: BadDisks, queue: str, offset_ms: int
) -> None:
    """The master's clock jumps: nobody is taken for dead, nothing expires before its time."""
    channel = clients.confirming(2)
    timed = f"{queue}.timed"
    clients.channel(1).queue_declare(timed, durable=True, arguments={"x-message-ttl": HOUR_MS})
    await_ring(cluster, timed, master=1, synchronised=NODES)
    for name in (queue, timed):
        publish(channel, name, bodies(0, 10))
    disks.move_clock(1, offset_ms)
    for name in (queue, timed):
        publish(channel, name, bodies(10, 20))
    for name in (queue, timed):
        ring = await_ring(cluster, name, master=1, synchronised=NODES)
        assert ring.master == cluster.nodes[0]
        assert drain(clients.channel(3), name) == bodies(0, 20)

"""Publishes for a home that is out of reach: on the disk in order, within bounds, and out again."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from pair import publish
from small_disk import SmallDisk
from test_publishing_far_away import confirming, drain, verdicts
from two_nodes import GatewayNode, Home, message, pair, settle

from warren.gateway.record import GatewayRecord
from warren.gateway.stash import Stash, StashRoom
from warren.node.stash_file import DamagedStashError, DiskStashFile

KIB = 1024
MIB = 1024 * 1024


def stash(limit: int = 1 << 30) -> tuple[SmallDisk, Stash, StashRoom]:
    disk = SmallDisk()
    room = StashRoom(disk.open, limit)
    return disk, Stash(room), room


# -- the stash itself --------------------------------------------------------------------------


def test_first_in_first_out_with_all_that_belongs_to_a_publish() -> None:
    disk, kept, room = stash()
    one, two = GatewayRecord(), GatewayRecord()
    for i in range(3000):
        publisher = (None, one, two)[i % 3]
        sent = message(b"%d" % i + b"x" * (i % 700), priority=i % 5, headers={"i": i})
        assert kept.add(sent, i % 7 + 1, publisher, i * 3, i)
    assert kept.count == 3000
    assert disk.files[0].chunks
    assert room.used > 0
    assert kept.memory_bytes < MIB
    for i in range(3000):
        found, numbers, publisher, tag, order = kept.pop()
        assert found.body == b"%d" % i + b"x" * (i % 700)
        assert found.header == message(found.body, priority=i % 5, headers={"i": i}).header
        assert (numbers, tag, order) == ([i % 7 + 1], i * 3, i)
        assert publisher is (None, one, two)[i % 3]
    assert kept.count == room.used == 0
    assert disk.files[0].is_closed


def test_a_message_for_several_queues_is_written_once() -> None:
    disk, kept, room = stash()
    sent = message(b"body" * 100_000)
    assert kept.add(sent, 1, None, 7)
    assert not kept.add(sent, 2, None, 7)
    assert not kept.add(sent, 3, None, 7)
    # The same message once more is another publish.
    assert kept.add(sent, 3, None, 8)
    assert kept.count == 2
    assert kept.pop()[1] == [1, 2, 3]
    assert kept.pop()[1] == [3]
    assert room.used == 0
    assert disk.files[0].is_closed


def test_publishes_come_and_go_in_any_rhythm() -> None:
    _, kept, room = stash()
    expected: deque[int] = deque()
    newest = 0
    for step in range(400):
        for _ in range(step * 7919 % 97):
            newest += 1
            kept.add(message(b"x" * (newest % 3000)), newest)
            expected.append(newest)
        for _ in range(min(step * 104729 % 101, len(expected))):
            assert kept.pop()[1] == [expected.popleft()]
        assert kept.count == len(expected)
    while expected:
        assert kept.pop()[1] == [expected.popleft()]
    assert room.used == 0


def test_it_is_full_at_its_limit_which_all_stashes_share() -> None:
    disk = SmallDisk()
    room = StashRoom(disk.open, MIB)
    one, two = Stash(room), Stash(room)
    while not one.full:
        one.add(message(b"x" * 1000), 1)
    assert two.full
    assert MIB <= room.used < MIB + 300 * KIB
    while one.count:
        one.pop()
    assert not two.full


def test_a_full_disk_is_waited_for_and_nothing_is_lost() -> None:
    disk, kept, _ = stash()
    disk.free = 600 * KIB
    added = 0
    while not kept.full:
        added += 1
        kept.add(message(b"x" * 1000), added)
    for _ in range(10):
        added += 1
        kept.add(message(b"x" * 1000), added)
    kept.try_again()
    assert kept.failing
    disk.free = 10 * MIB
    kept.try_again()
    assert not kept.failing
    assert [kept.pop()[1] for _ in range(added)] == [[i + 1] for i in range(added)]


def test_a_full_disk_is_no_matter_any_more_when_the_home_is_back() -> None:
    disk, kept, _ = stash()
    disk.free = 0
    for i in range(1, 1001):
        kept.add(message(b"x" * 1000), i)
    assert kept.full
    assert [kept.pop()[1] for _ in range(1000)] == [[i] for i in range(1, 1001)]
    assert not kept.full


def test_the_file_has_no_name_and_is_checked(tmp_path: Path) -> None:
    damaged: list[Exception] = []
    file = DiskStashFile(tmp_path / "stash", damaged.append)
    assert list((tmp_path / "stash").iterdir()) == []
    file.append(b"one")
    file.append(b"and two")
    assert file.take() == b"one"
    assert file.take() == b"and two"
    file.append(b"three")
    with Path(f"/proc/self/fd/{file.fileno()}").open("r+b", 0) as same:
        same.seek(len(b"oneand two"))
        same.write(b"thref")
    with pytest.raises(DamagedStashError):
        file.take()
    assert len(damaged) == 1
    file.close()


# -- in front of a home --------------------------------------------------------------------------


def stashing_pair(
    limit: int = 1 << 30, queues: int = 2, durable: bool = True
) -> tuple[Home, GatewayNode, SmallDisk]:
    home, node = pair(queues, durable)
    disk = SmallDisk()
    node.gateway.use_stash(StashRoom(disk.open, limit))
    return home, node, disk


def cut(node: GatewayNode) -> None:
    """Nothing gets through any more, and both ends notice."""
    assert node.link is not None
    node.link = None
    node.gateway.link_lost()


def bodies(count: int, size: int = 4000) -> list[bytes]:
    return [(b"%08d" % i).ljust(size, b".") for i in range(count)]


def test_publishes_wait_for_the_home_and_follow_in_order() -> None:
    home, node, disk = stashing_pair()
    client = confirming(node)
    sent = bodies(2000)
    client.send(publish(1, "", "q1", sent[0], delivery_mode=2))
    node.end_turn()
    assert node.link is not None
    # It has reached the home, whose answer has not come back.
    node.link.carry_out()
    home.end_turn()
    cut(node)
    node.gateway.home_gone()
    for body in sent[1:]:
        client.send(publish(1, "", "q1", body, delivery_mode=2))
    assert client.frames() == []
    assert node.gateway.unanswered_bytes < 2 * MIB
    assert node.gateway.stashed_count > 1000
    assert not node.queues[0].congested
    node.connect()
    settle(node)
    told = verdicts(client.frames())
    assert {name for name, _, _ in told} == {"ack"}
    assert told[-1][1] == len(sent)
    assert drain(home) == sent
    assert node.gateway.stashed_count == 0
    assert disk.files[0].is_closed


def test_publishes_without_confirms_wait_too() -> None:
    home, node, _ = stashing_pair()
    client = node.client()
    sent = bodies(600)
    cut(node)
    for body in sent:
        client.send(publish(1, "", "q1", body))
    assert node.gateway.stashed_count > 100
    node.connect()
    settle(node)
    assert drain(home) == sent


def test_who_publishes_while_the_disk_is_read_is_held_back_and_overtakes_nobody() -> None:
    home, node, _ = stashing_pair()
    client = confirming(node)
    sent = bodies(3000)
    cut(node)
    for body in sent[:2000]:
        client.send(publish(1, "", "q1", body, delivery_mode=2))
    node.connect()
    for body in sent[2000:]:
        client.send(publish(1, "", "q1", body, delivery_mode=2))
    assert node.queues[0].congested
    settle(node)
    assert drain(home) == sent
    assert not node.queues[0].congested


def test_a_home_that_begins_anew_gets_what_it_was_never_sent() -> None:
    home, node, _ = stashing_pair()
    client = confirming(node)
    sent = bodies(800)
    client.send(publish(1, "", "q1", sent[0], delivery_mode=2))
    client.send(publish(1, "", "q1", sent[1], delivery_mode=2))
    node.end_turn()
    cut(node)
    node.gateway.home_gone()
    for body in sent[2:]:
        client.send(publish(1, "", "q1", body, delivery_mode=2))
    home.start()
    node.connect()
    settle(node)
    told = verdicts(client.frames())
    # Nobody knows what became of the first two.
    assert told[:2] == [("nack", 1, False), ("nack", 2, False)]
    assert {name for name, _, _ in told[2:]} == {"ack"}
    assert drain(home) == sent[2:]


def test_a_home_that_is_forgotten_takes_all_with_it() -> None:
    _home, node, disk = stashing_pair()
    client = confirming(node)
    cut(node)
    for body in bodies(800):
        client.send(publish(1, "", "q1", body))
    node.gateway.home_forgotten()
    node.end_turn()
    told = verdicts(client.frames())
    assert [(name, tag) for name, tag, _ in told] == [("nack", i + 1) for i in range(800)]
    assert disk.files[0].is_closed


def test_what_is_for_a_queue_that_is_deleted_is_refused() -> None:
    home, node, _ = stashing_pair()
    client = confirming(node)
    cut(node)
    sent = bodies(800)
    for i, body in enumerate(sent):
        client.send(publish(1, "", f"q{i % 2 + 1}", body, delivery_mode=2))
    node.gateway.queue_deleted(2)
    node.end_turn()
    node.connect()
    settle(node)
    told = verdicts(client.frames())
    assert sum(name == "nack" for name, _, _ in told) == 400
    assert drain(home) == sent[::2]
    assert drain(home, 2) == []


def test_a_full_stash_holds_publishers_back_until_there_is_room() -> None:
    home, node, _ = stashing_pair(limit=2 * MIB)
    client = confirming(node)
    cut(node)
    sent = bodies(1100)
    for body in sent:
        client.send(publish(1, "", "q1", body, delivery_mode=2))
    queue = node.queues[0]
    assert queue.congested
    assert queue.is_stash_full
    assert queue.pause_ended(0, 0)
    node.connect()
    settle(node)
    assert not queue.congested
    assert not queue.is_stash_full
    assert drain(home) == sent


def test_a_disk_that_takes_nothing_holds_publishers_back() -> None:
    home, node, disk = stashing_pair()
    disk.free = 0
    client = confirming(node)
    cut(node)
    sent = bodies(800)
    for body in sent:
        client.send(publish(1, "", "q1", body, delivery_mode=2))
    assert node.queues[0].is_stash_full
    disk.free = 100 * MIB
    assert not node.queues[0].pause_ended(0, 0)
    node.connect()
    settle(node)
    assert drain(home) == sent

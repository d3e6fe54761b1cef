"""Publishes to queues of another node: confirms, refusals, transactions, lost links."""

from __future__ import annotations

from typing import Any

import pytest
from pair import Client, Received, method, publish
from two_nodes import GatewayNode, Home, message, pair, settle

FRAME_PUBLISH = 33
MIB = 1024 * 1024


def verdicts(frames: list[Received]) -> list[tuple[str, int, bool]]:
    return [
        (frame.name.removeprefix("basic."), frame["delivery_tag"], frame["multiple"])
        for frame in frames
    ]


def confirming(node: GatewayNode) -> Client:
    client = node.client()
    assert client.call(1, "confirm.select").name == "confirm.select-ok"
    return client


def drain(home: Home, number: int = 1) -> list[bytes]:
    bodies = []
    while (found := home.queues[number].get(True, home.turn.now_ms)) is not None:
        if found != 0:
            bodies.append(found[0].body)
        home.end_turn()
        home.sync()
    return bodies


def test_a_publish_is_confirmed_when_the_home_has_it() -> None:
    home, node = pair()
    client = confirming(node)
    assert client.exchange(publish(1, "", "q1", b"one") + publish(1, "", "q1", b"two")) == []
    settle(node)
    assert verdicts(client.frames()) == [("ack", 2, True)]
    assert drain(home) == [b"one", b"two"]
    assert node.gateway.unanswered_count == 0


def test_a_confirm_waits_for_the_disk_of_the_home() -> None:
    _home, node = pair(durable=True)
    client = confirming(node)
    client.send(publish(1, "", "q1", b"kept", delivery_mode=2))
    node.end_turn()
    assert node.link is not None
    node.link.carry_out()
    node.link.carry_back()
    assert client.frames() == []
    settle(node)
    assert verdicts(client.frames()) == [("ack", 1, False)]


def test_refusals_nack_exactly_the_refused_in_order() -> None:
    home, node = pair(2)
    home.queues[2].configure(max_length=1, overflow="reject-publish")
    client = confirming(node)
    keys = ["q1", "q2", "q1", "q2", "q2", "q1", "q1", "q2"]
    client.send(b"".join(publish(1, "", key) for key in keys))
    settle(node)
    assert verdicts(client.frames()) == [
        ("ack", 3, True),
        ("nack", 4, False),
        ("nack", 5, False),
        ("ack", 7, True),
        ("nack", 8, False),
    ]


def test_local_publishes_behind_a_remote_one_are_told_in_order() -> None:
    _home, node = pair()
    client = confirming(node)
    client.call(1, "queue.declare", 0, "near")
    client.send(publish(1, "", "near"))
    assert verdicts(client.frames()) == [("ack", 1, False)]
    client.send(publish(1, "", "q1") + publish(1, "", "near"))
    client.send(publish(1, "", "near"))
    assert client.frames() == []
    settle(node)
    assert verdicts(client.frames()) == [("ack", 4, True)]


def test_a_queue_that_is_not_there_refuses() -> None:
    home, node = pair(2)
    del home.queues[2]
    client = confirming(node)
    client.send(publish(1, "", "q1") + publish(1, "", "q2"))
    settle(node)
    assert verdicts(client.frames()) == [("ack", 1, False), ("nack", 2, False)]


def test_a_message_for_several_queues_of_a_home_is_sent_once() -> None:
    home, node = pair(3)
    client = confirming(node)
    for name in ("q1", "q2", "q3"):
        assert client.call(1, "queue.bind", 0, name, "amq.fanout").name == "queue.bind-ok"
    home.queues[2].configure(max_length=0, overflow="reject-publish")
    client.send(publish(1, "amq.fanout", "", b"x" * 100))
    node.end_turn()
    assert node.link is not None
    kinds = [kind for kind, _ in node.link.dialled.waiting()]
    assert kinds.count(FRAME_PUBLISH) == 1
    settle(node)
    assert verdicts(client.frames()) == [("nack", 1, False)]
    assert [home.queues[n].ready for n in (1, 2, 3)] == [1, 0, 1]


@pytest.mark.parametrize("size", [0, 1, MIB - 60, MIB - 33, MIB - 32, MIB, 3 * MIB, 5 * MIB + 1])
def test_messages_of_all_sizes(size: int) -> None:
    home, node = pair()
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    node.queues[0].offer(message(body, headers={"a": "b"}), 0)
    settle(node)
    (got,) = drain(home)
    assert got == body


def test_every_length_around_the_end_of_a_frame() -> None:
    home, node = pair()
    for size in range(MIB - 64, MIB + 8):
        node.queues[0].offer(message(bytes(size)), 0)
        settle(node)
        assert len(drain(home)[0]) == size


def test_what_is_unanswered_is_sent_again_and_taken_once() -> None:
    home, node = pair()
    client = confirming(node)
    client.send(b"".join(publish(1, "", "q1", b"%d" % n) for n in range(10)))
    node.end_turn()
    assert node.link is not None
    node.link.carry_out(5)
    node.link.cut()
    client.send(publish(1, "", "q1", b"10"))
    assert client.frames() == []
    node.connect()
    settle(node)
    assert verdicts(client.frames()) == [("ack", 11, True)]
    assert drain(home) == [b"%d" % n for n in range(11)]


def test_a_refusal_that_was_lost_with_its_link_is_told_again() -> None:
    home, node = pair()
    home.queues[1].configure(max_length=1, overflow="reject-publish")
    client = confirming(node)
    client.send(publish(1, "", "q1") + publish(1, "", "q1"))
    node.end_turn()
    assert node.link is not None
    node.link.carry_out()
    node.link.cut()
    node.connect()
    settle(node)
    assert verdicts(client.frames()) == [("ack", 1, False), ("nack", 2, False)]
    (record,) = home.records.values()
    assert record.refused_count == 0


def test_when_the_home_is_gone_the_unanswered_are_refused() -> None:
    home, node = pair()
    client = confirming(node)
    client.send(publish(1, "", "q1") + publish(1, "", "q1"))
    assert node.link is not None
    node.link.cut()
    node.gateway.home_gone()
    assert verdicts(client.frames()) == [("nack", 1, False), ("nack", 2, False)]
    client.send(publish(1, "", "q1"))
    assert verdicts(client.frames()) == [("nack", 3, False)]
    node.connect()
    client.send(publish(1, "", "q1", b"again"))
    settle(node)
    assert verdicts(client.frames()) == [("ack", 4, False)]
    assert drain(home) == [b"again"]


def test_another_incarnation_of_the_home_knows_nothing_of_what_was_sent() -> None:
    home, node = pair(durable=True)
    client = confirming(node)
    client.send(publish(1, "", "q1", b"a", delivery_mode=2))
    settle(node)
    client.frames()
    client.send(publish(1, "", "q1", b"b", delivery_mode=2))
    node.end_turn()
    assert node.link is not None
    node.link.carry_out()
    node.link.cut()
    home.disk.cut_power()
    home.start()
    node.connect()
    assert verdicts(client.frames()) == [("nack", 2, False)]
    client.send(publish(1, "", "q1", b"c", delivery_mode=2))
    settle(node)
    assert verdicts(client.frames()) == [("ack", 3, False)]
    assert {b"a", b"c"} <= set(drain(home)) <= {b"a", b"b", b"c"}


def test_a_commit_is_answered_when_all_its_parts_are() -> None:
    home, node = pair(2)
    client = node.client()
    client.call(1, "tx.select")
    client.send(publish(1, "", "q1", b"x") + publish(1, "", "q2", b"y"))
    assert client.exchange(method(1, "tx.commit") + method(1, "tx.rollback")) == []
    settle(node)
    assert [frame.name for frame in client.frames()] == ["tx.commit-ok", "tx.rollback-ok"]
    assert drain(home, 1) + drain(home, 2) == [b"x", b"y"]


def test_a_commit_with_a_refused_part_fails_as_on_one_node() -> None:
    home, node = pair(2)
    home.queues[2].configure(max_length=0, overflow="reject-publish")
    client = node.client()
    client.call(1, "tx.select")
    client.send(publish(1, "", "q1") + publish(1, "", "q2") + method(1, "tx.commit"))
    settle(node)
    (close,) = client.frames()
    assert (close.name, close["reply_code"]) == ("channel.close", 406)
    assert "partial tx completion" in close["reply_text"]


def test_publishers_hold_back_while_too_much_is_unanswered() -> None:
    _home, node = pair()
    queue = node.queues[0]
    relieved: list[Any] = []
    node.engine.effects.on_relieved = relieved.append
    for _ in range(20):
        queue.offer(message(bytes(MIB)), 0)
    assert queue.congested
    assert queue.pause_ended(0, 0)
    assert node.link is not None
    node.link.cut()
    assert queue.congested
    node.connect()
    settle(node)
    assert not queue.congested
    assert relieved == [queue]
    assert not queue.pause_ended(0, 0)


def test_a_channel_that_is_closed_gets_no_confirms() -> None:
    _home, node = pair()
    client = confirming(node)
    client.send(publish(1, "", "q1"))
    assert client.call(1, "channel.close").name == "channel.close-ok"
    settle(node)
    assert client.frames() == []
    client.send(method(1, "channel.open"))
    assert [frame.name for frame in client.frames()] == ["channel.open-ok"]


def test_a_link_that_another_has_replaced_is_not_listened_to() -> None:
    home, node = pair()
    settle(node)
    old = node.link
    assert old is not None
    node.queues[0].offer(message(b"1"), 0)
    node.end_turn()
    node.connect()
    settle(node)
    assert home.ends[0].port is None
    old.carry_out()
    assert drain(home) == [b"1"]


def test_a_late_start_of_an_older_link_does_not_replace_the_newer_one() -> None:
    home, node = pair()
    old = node.link
    assert old is not None
    node.queues[0].offer(message(b"1"), 0)
    node.end_turn()
    node.connect()
    settle(node)
    with pytest.raises(ValueError, match="another link"):
        old.carry_out()
    node.queues[0].offer(message(b"2"), 0)
    settle(node)
    assert drain(home) == [b"1", b"2"]


def test_a_congested_home_has_publishers_elsewhere_pause() -> None:
    home, node = pair(2)
    queue = home.queues[1]
    slow = node.client()
    slow.call(1, "basic.qos", 0, 1)
    slow.exchange(method(1, "basic.consume", 0, "q1", "c"))
    settle(node)
    client = node.client()
    client.send(publish(1, "", "q1", b"x") * 17_000)
    settle(node)
    assert queue.congested
    # The home has said so; whoever publishes next is held back, and only to that queue.
    client.send(publish(1, "", "q2", b"x"))
    assert not node.queues[1].congested
    client.send(publish(1, "", "q1", b"x"))
    assert node.queues[0].congested
    # The pause is over, and nobody is held back for the same word twice.
    assert not node.queues[0].pause_ended(0, 0)
    client.send(publish(1, "", "q1", b"x"))
    assert not node.queues[0].congested
    # The consumers got nowhere in that pause: they are not waited for again.
    home.turn.now_ms += 20
    settle(node)
    assert not queue.congested
    client.send(publish(1, "", "q1", b"x"))
    settle(node)
    assert not node.queues[0].congested

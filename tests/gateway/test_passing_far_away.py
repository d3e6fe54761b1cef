"""Messages passed on to a queue of another node: held here until that node has them."""

from __future__ import annotations

from typing import Any

from pair import Client, method, publish
from test_dead_letters_far_away import lose_home, numbers, pass_time
from two_nodes import GatewayNode, pair, settle

from warren.engine.passing import REST_MS_MAX
from warren.queue.looking import peek

SOURCE = "source"


def declare(node: GatewayNode, *bodies: bytes) -> tuple[Client, Any]:
    client = node.client()
    client.call(1, "queue.declare", queue=SOURCE, durable=True)
    for body in bodies:
        client.send(publish(1, "", SOURCE, body, delivery_mode=2))
    client.frames()
    return client, node.engine.vhost("/").queues[SOURCE]


def pass_all(node: GatewayNode, source: Any) -> list[bool]:
    """All that is ready goes to the home's q1; what is said to each, as it is said."""
    told: list[bool] = []
    target: Any = node.engine.vhost("/").queues["q1"]
    for slot, _, _, _, _, message in peek(source, 100):
        assert node.engine.passing.pass_on(source, slot, message, target, told.append)
    return told


def state(queue: Any) -> tuple[int, int]:
    queue.check()
    return queue.ready, queue.unacked


def test_held_until_it_is_on_the_other_disk() -> None:
    home, node = pair(durable=True)
    client, source = declare(node, *numbers(0, 5))
    told = pass_all(node, source)
    node.end_turn()
    assert node.link is not None
    node.link.carry_out()
    home.end_turn()
    node.link.carry_back()
    node.end_turn()
    assert (state(source), told) == ((0, 5), [])
    # Nobody gets what is on its way.
    assert client.call(1, "basic.get", queue=SOURCE).name == "basic.get-empty"
    home.sync()
    settle(node)
    assert (state(source), source.total_bytes, told) == ((0, 0), 0, [True] * 5)
    shown = [bytes(row[5].body) for row in peek(home.queues[1], 9)]
    assert shown == numbers(0, 5)


def test_what_the_other_node_does_not_take_is_back_in_its_place() -> None:
    _, node = pair()
    client, source = declare(node, *numbers(0, 5))
    told = pass_all(node, source)
    assert state(source) == (0, 5)
    client.send(publish(1, "", SOURCE, b"5", delivery_mode=2))
    client.frames()
    lose_home(node)
    assert (state(source), told) == ((6, 0), [False] * 5)
    for number in range(6):
        got, _, body = client.exchange(method(1, "basic.get", queue=SOURCE))
        assert (got["redelivered"], body.payload) == (False, b"%d" % number)


def test_consumers_get_what_is_back() -> None:
    _, node = pair()
    client, source = declare(node, b"0")
    told = pass_all(node, source)
    client.call(1, "basic.consume", queue=SOURCE)
    assert client.frames() == []
    lose_home(node)
    assert told == [False]
    assert [frame.name for frame in client.frames()[:1]] == ["basic.deliver"]


def test_the_next_master_waits_for_what_is_on_its_way_but_not_for_long() -> None:
    _, node = pair()
    _, source = declare(node, *numbers(0, 3))
    passing, quiet = node.engine.passing, []
    passing.rest(source, lambda: quiet.append("at once"))
    pass_all(node, source)
    passing.rest(source, lambda: quiet.append("when all are there"))
    assert quiet == ["at once"]
    settle(node)
    assert quiet == ["at once", "when all are there"]
    fill = node.clients[0]
    fill.send(publish(1, "", SOURCE, b"3", delivery_mode=2))
    fill.frames()
    pass_all(node, source)
    passing.rest(source, lambda: quiet.append("after a while"))
    node.link = None
    pass_time(node, REST_MS_MAX + 1)
    assert quiet[2:] == ["after a while"]
    assert state(source) == (0, 1)


def test_a_queue_that_is_another_ones_is_left_alone() -> None:
    _, node = pair()
    client, source = declare(node, *numbers(0, 3))
    assert node.engine.passing.may_take_from(source)
    told = pass_all(node, source)
    client.call(1, "queue.delete", queue=SOURCE)
    assert not node.engine.passing.may_take_from(source)
    settle(node)
    assert told == [True] * 3

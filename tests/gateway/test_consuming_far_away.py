"""Consumers of queues of another node: credit, prefetch, parked deliveries, lost links."""

from __future__ import annotations

import pytest
from pair import Client, Received, method, publish
from two_nodes import GatewayNode, Home, message, pair, settle

from warren.engine.effects import REASONS
from warren.gateway.errors import LinkLostError
from warren.gateway.memory_link import feed
from warren.queue.queue import Queue

MIB = 1024 * 1024
#: The frame of a home that serves queues no longer, and lists them.
DROPPED = 53


def fill(home: Home, count: int, number: int = 1, first: int = 0) -> None:
    for n in range(first, first + count):
        home.queues[number].offer(message(b"%d" % n), home.turn.now_ms)


def consume(node: GatewayNode, client: Client, *, no_ack: bool = False, queue: str = "q1") -> None:
    frames = client.exchange(method(1, "basic.consume", 0, queue, "", no_ack=no_ack))
    assert [frame.name for frame in frames] == ["basic.consume-ok"]


def consuming(waiting: int = 0, *, no_ack: bool = False) -> tuple[Home, GatewayNode, Client]:
    """A home, and a node with a client that consumes its queue, in which so many messages wait."""
    home, node = pair()
    client = node.client()
    fill(home, waiting)
    consume(node, client, no_ack=no_ack)
    settle(node)
    return home, node, client


def stop_reading(client: Client) -> None:
    """Of the client's own will: what it has got so far it has seen."""
    client.frames()
    client.peer.outlet.writable = False


def deliveries(client: Client) -> list[tuple[int, bytes, bool]]:
    """(tag, body, redelivered) of all that came."""
    found = []
    frames = client.frames()
    for at, frame in enumerate(frames):
        if frame.name == "basic.deliver":
            size = int.from_bytes(frames[at + 1].payload[4:12], "big")
            body, i = b"", at + 2
            while len(body) < size:
                body += frames[i].payload
                i += 1
            found.append((frame["delivery_tag"], body, frame["redelivered"]))
    return found


def bodies(client: Client) -> list[bytes]:
    return [body for _, body, _ in deliveries(client)]


def limit(client: Client, count: int, shared: bool = False) -> None:
    assert client.call(1, "basic.qos", 0, count, shared).name == "basic.qos-ok"


def ack(client: Client, tag: int, multiple: bool = False) -> None:
    client.send(method(1, "basic.ack", tag, multiple))


def test_messages_come_in_order_and_leave_when_they_are_acknowledged() -> None:
    home, node, client = consuming(3)
    assert deliveries(client) == [(1, b"0", False), (2, b"1", False), (3, b"2", False)]
    assert home.queues[1].unacked == 3
    ack(client, 2, True)
    settle(node)
    assert (home.queues[1].unacked, home.queues[1].acked) == (1, 2)
    client.send(method(1, "basic.reject", 3, True))
    settle(node)
    assert deliveries(client) == [(4, b"2", True)]
    client.send(method(1, "basic.reject", 4, False))
    settle(node)
    [(queue, _, reason, slot)] = home.effects.take_dead_letters()
    assert (REASONS[reason], queue.buried) == ("rejected", 1)
    home.queues[1].check()
    queue.end_burial(slot, reason, queue.burial_term)
    assert (queue.ready, queue.buried, queue.total_bytes) == (0, 0, 0)
    home.queues[1].check()


def test_the_prefetch_limit_is_kept_at_the_home() -> None:
    home, node = pair()
    client = node.client()
    limit(client, 2)
    fill(home, 5)
    consume(node, client)
    settle(node)
    assert bodies(client) == [b"0", b"1"]
    assert (home.queues[1].ready, home.queues[1].unacked) == (3, 2)
    ack(client, 1)
    settle(node)
    assert bodies(client) == [b"2"]


def test_a_limit_that_consumers_share_parks_deliveries_at_the_gateway() -> None:
    home, node = pair(2)
    client = node.client()
    limit(client, 3, shared=True)
    fill(home, 4, 1)
    fill(home, 4, 2, first=10)
    consume(node, client)
    consume(node, client, queue="q2")
    settle(node)
    seen = deliveries(client)
    assert len(seen) == 3
    assert node.queues[0].parked + node.queues[1].parked == 5
    out = [tag for tag, _, _ in seen]
    for _ in range(5):
        ack(client, out.pop(0))
        settle(node)
        (more,) = deliveries(client)
        seen.append(more)
        out.append(more[0])
    assert sorted(body for _, body, _ in seen) == [b"%d" % n for n in (0, 1, 10, 11, 12, 13, 2, 3)]
    for row in ((b"0", b"1", b"2", b"3"), (b"10", b"11", b"12", b"13")):
        assert [body for _, body, _ in seen if body in row] == list(row)


def test_what_is_parked_goes_back_unseen_when_the_consumer_is_cancelled() -> None:
    home, node = pair()
    client = node.client()
    limit(client, 1, shared=True)
    fill(home, 3)
    answer = client.call(1, "basic.consume", 0, "q1", "tag")
    assert answer.name == "basic.consume-ok"
    settle(node)
    assert deliveries(client) == [(1, b"0", False)]
    client.send(method(1, "basic.cancel", "tag"))
    settle(node)
    assert [frame.name for frame in client.frames()] == ["basic.cancel-ok"]
    assert (home.queues[1].ready, home.queues[1].unacked, home.queues[1].delivered) == (2, 1, 1)
    client.send(method(1, "channel.close"))
    settle(node)
    flags = [home.queues[1].get(True, 0) for _ in range(3)]
    assert [(f[0].body, f[2]) for f in flags if f] == [
        (b"0", True),
        (b"1", False),
        (b"2", False),
    ]


def test_deliveries_under_way_to_a_cancelled_consumer_go_back_unseen() -> None:
    home, node = pair()
    client = node.client()
    client.call(1, "basic.consume", 0, "q1", "tag")
    settle(node)
    fill(home, 2)
    client.send(method(1, "basic.cancel", "tag"))
    settle(node)
    assert [frame.name for frame in client.frames()] == ["basic.cancel-ok"]
    assert [(home.queues[1].get(True, 0) or (0, 0, 9))[2] for _ in range(2)] == [False, False]


def test_a_client_that_does_not_read_gets_no_more_than_its_credit() -> None:
    home, node, client = consuming()
    stop_reading(client)
    fill(home, 3000)
    settle(node)
    assert home.queues[1].unacked == node.queues[0].parked == 1024
    assert client.frames() == []
    client.peer.became_writable()
    settle(node)
    assert len(deliveries(client)) == 3000
    assert node.queues[0].parked == 0


def test_credit_is_counted_in_bytes_too() -> None:
    home, node, client = consuming()
    stop_reading(client)
    for _ in range(10):
        home.queues[1].offer(message(bytes(400_000)), 0)
    settle(node)
    assert home.queues[1].unacked == 3


def test_a_client_that_acknowledges_nothing_loses_nothing_that_was_under_way() -> None:
    home, node, client = consuming(5, no_ack=True)
    assert bodies(client) == [b"0", b"1", b"2", b"3", b"4"]
    assert (home.queues[1].unacked, home.queues[1].ready) == (0, 0)
    client.peer.outlet.writable = False
    fill(home, 2)
    settle(node)
    client.send(method(1, "channel.close"))
    settle(node)
    assert (home.queues[1].unacked, home.queues[1].ready) == (0, 2)


def test_when_the_link_is_lost_what_was_out_comes_again() -> None:
    home, node, client = consuming(3)
    assert len(deliveries(client)) == 3
    assert node.link is not None
    node.link.cut()
    assert (home.queues[1].ready, home.queues[1].unacked) == (3, 0)
    assert len(home.gone) == 1
    ack(client, 1)
    node.connect()
    # Acknowledgements of the earlier link mean nothing, before and after the new one.
    ack(client, 2)
    settle(node)
    assert deliveries(client) == [(4, b"0", True), (5, b"1", True), (6, b"2", True)]
    ack(client, 3)
    settle(node)
    assert home.queues[1].acked == 0
    ack(client, 0, True)
    settle(node)
    assert (home.queues[1].acked, home.queues[1].unacked) == (3, 0)


def test_old_deliveries_count_for_the_limit_after_a_new_link() -> None:
    home, node = pair()
    client = node.client()
    limit(client, 2)
    fill(home, 4)
    consume(node, client)
    settle(node)
    assert len(deliveries(client)) == 2
    assert node.link is not None
    node.link.cut()
    node.connect()
    settle(node)
    assert deliveries(client) == []
    ack(client, 1)
    settle(node)
    assert deliveries(client) == [(3, b"0", True)]


def test_consumers_of_a_home_that_is_gone_are_named() -> None:
    _home, node, _client = consuming()
    assert node.link is not None
    node.link.cut()
    assert node.lost == []
    node.gateway.home_gone()
    assert [consumer.queue for consumer in node.lost] == [node.queues[0]]


def test_a_home_that_is_given_up_is_not_listened_to_any_more() -> None:
    """Others have agreed that it is gone, before the link to it is."""
    home, node, client = consuming()
    fill(home, 2)
    home.end_turn()
    old = node.link
    assert old is not None
    old.accepted.send(DROPPED, (1).to_bytes(4, "little"))
    assert old.accepted.waiting()
    node.gateway.home_gone()
    feed(node.gateway, DROPPED, (1).to_bytes(4, "little"))
    node.connect()
    old.carry_back()
    assert deliveries(client) == []
    settle(node)
    assert [body for _, body, _ in deliveries(client)] == [b"0", b"1"]


def test_two_gateways_share_a_queue() -> None:
    home = Home()
    nodes = [GatewayNode(home, "a"), GatewayNode(home, "b")]
    clients = [node.client() for node in nodes]
    for node, client in zip(nodes, clients, strict=True):
        limit(client, 1)
        consume(node, client)
    settle(*nodes)
    fill(home, 4)
    settle(*nodes)
    first, second = (deliveries(client) for client in clients)
    assert sorted(body for _, body, _ in first + second) == [b"0", b"1"]
    link = nodes[0].link
    assert link is not None
    link.cut()
    ack(clients[1], 1)
    settle(*nodes)
    (again,) = deliveries(clients[1])
    assert again[2] or again[1] == b"2"
    home.queues[1].check()


def test_priorities_of_consumers_and_messages() -> None:
    home, node = pair()
    home.queues[1] = Queue("q1", home.effects, 5)
    for n, priority in enumerate((0, 5, 3)):
        home.queues[1].offer(message(b"%d" % n, priority=priority), 0)
    low, high = node.client(), node.client()
    limit(low, 1)
    limit(high, 1)
    consume(node, low)
    high.call(1, "basic.consume", 0, "q1", "high", arguments={"x-priority": 10})
    settle(node)
    assert [bodies(low), bodies(high)] in ([[b"1"], [b"2"]], [[b"2"], [b"1"]])
    ack(high, 1)
    settle(node)
    assert bodies(high) == [b"0"]
    ack(high, 2)
    ack(low, 1)
    settle(node)
    assert home.queues[1].unacked == 0
    home.queues[1].check()


@pytest.mark.parametrize("size", [0, MIB - 60, MIB, 3 * MIB])
def test_long_messages_are_delivered_in_pieces(size: int) -> None:
    home, node = pair()
    client = node.client()
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    home.queues[1].offer(message(body), 0)
    consume(node, client)
    settle(node)
    assert bodies(client) == [body]


def test_a_get_is_settled_or_comes_back_with_its_link() -> None:
    home, node = pair()
    fill(home, 3)
    first = node.get(1)
    second = node.get(1)
    assert first
    assert second
    assert (first[0].body, second[0].body) == (b"0", b"1")
    queue = node.queues[0]
    queue.give_back(second[1])
    settle(node)
    third = node.get(1)
    assert third
    assert (third[0].body, third[2]) == (b"1", False)
    assert node.link is not None
    node.link.cut()
    node.connect()
    again = node.get(1, no_ack=True)
    assert again
    assert (again[0].body, again[2]) == (b"0", True)
    assert node.get(1, no_ack=True)
    assert node.get(1, no_ack=True)
    assert node.get(1) is None


@pytest.mark.parametrize("size", [0, 1, MIB - 14, MIB - 13, MIB, 3 * MIB + 5])
def test_requests_and_replies_of_all_sizes(size: int) -> None:
    _, node = pair()
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    errand = node.gateway.request(77, payload)
    settle(node)
    assert errand.result() == (True, payload)


def test_open_requests_fail_when_the_link_ends() -> None:
    _, node = pair()
    errand = node.gateway.request(77, b"")
    assert node.link is not None
    node.link.cut()
    with pytest.raises(LinkLostError):
        errand.result()
    with pytest.raises(LinkLostError):
        node.gateway.request(77, b"").result()


def test_a_request_comes_after_what_was_sent_before_it() -> None:
    _home, node = pair()
    node.queues[0].offer(message(b"first"), 0)
    found = node.get(1)
    assert found
    assert found[0].body == b"first"


def test_settlements_travel_as_runs() -> None:
    home, node, client = consuming(500)
    seen: list[Received] = client.frames()
    assert seen
    ack(client, 500, True)
    node.end_turn()
    assert node.link is not None
    assert [(kind, len(payload)) for kind, payload in node.link.dialled.waiting()] == [(34, 17)]
    settle(node)
    assert home.queues[1].acked == 500


def test_settlements_and_publishes_keep_their_order() -> None:
    _home, node, client = consuming(4)
    client.frames()
    one = publish(1, "", "q1", b"new")
    client.send(b"".join((ack_frame(1), ack_frame(2), one, ack_frame(3), one, one, ack_frame(4))))
    node.end_turn()
    assert node.link is not None
    kinds = [kind for kind, _ in node.link.dialled.waiting()]
    assert kinds == [34, 33, 34, 33, 33, 34]


def ack_frame(tag: int) -> bytes:
    return method(1, "basic.ack", tag)


def test_a_delivery_does_not_overtake_what_is_parked() -> None:
    home, node, client = consuming()
    stop_reading(client)
    fill(home, 2)
    settle(node)
    client.peer.outlet.writable = True
    fill(home, 1, first=2)
    settle(node)
    assert deliveries(client) == []
    client.peer.became_writable()
    assert bodies(client) == [b"0", b"1", b"2"]


def test_the_home_forgets_queues_that_nobody_uses_over_a_link() -> None:
    home, node = pair()
    (end,) = home.ends
    client = node.client()
    fill(home, 2)
    client.call(1, "basic.consume", 0, "q1", "tag")
    settle(node)
    client.frames()
    assert (end.loan_count, len(end.all_consumers())) == (1, 1)
    client.send(method(1, "basic.cancel", "tag"))
    settle(node)
    assert (end.loan_count, len(end.all_consumers())) == (1, 0)
    ack(client, 2, True)
    settle(node)
    assert end.loan_count == 0


def test_a_queue_that_goes_away_takes_its_consumers_off() -> None:
    home, node, client = consuming()
    (consumer,) = home.ends[0].all_consumers()
    consumer.detach()
    assert home.queues[1].consumers == []
    fill(home, 1)
    settle(node)
    assert deliveries(client) == []


def test_a_pause_gives_back_what_no_client_has_seen() -> None:
    home, node = pair()
    client = node.client()
    # A limit that all consumers of the channel share is known here only: the home sends ahead.
    limit(client, 2, shared=True)
    consume(node, client)
    fill(home, 10)
    settle(node)
    assert bodies(client) == [b"0", b"1"]
    queue = node.queues[0]
    assert queue.parked > 0
    home.queues[1].set_paused(True)
    queue.set_paused(True)
    settle(node)
    assert (queue.parked, home.queues[1].ready, home.queues[1].unacked) == (0, 8, 2)
    ack(client, 2, multiple=True)
    settle(node)
    assert (bodies(client), home.queues[1].ready, home.queues[1].unacked) == ([], 8, 0)
    for paused in (queue, home.queues[1]):
        paused.set_paused(False)
        paused.run(home.turn.now_ms)
    settle(node)
    assert deliveries(client) == [(3, b"2", False), (4, b"3", False)]


def test_what_is_on_its_way_when_the_home_does_not_know_of_the_pause() -> None:
    home, node, client = consuming()
    node.queues[0].set_paused(True)
    fill(home, 3000)
    settle(node)
    # It is parked within the credit, and comes in order when consumers go on.
    assert bodies(client) == []
    assert 0 < node.queues[0].parked < 3000
    node.queues[0].set_paused(False)
    node.queues[0].run(0)
    settle(node)
    assert bodies(client) == [b"%d" % n for n in range(3000)]

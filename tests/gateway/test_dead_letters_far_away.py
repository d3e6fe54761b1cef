"""Dead letters for a queue on another node: their messages stay until that node has them."""

from __future__ import annotations

from typing import Any

import pytest
from pair import Client, method, publish
from two_nodes import GatewayNode, Home, pair, settle

from warren.queue.queue import Queue
from warren.wire.properties import decode_properties

SOURCE = "source"
TARGET = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q1"}


def declare(node: GatewayNode, name: str = SOURCE, **arguments: Any) -> tuple[Client, Any]:
    """A queue of this node whose letters go to the home's q1."""
    client = node.client()
    named = {key.replace("_", "-"): value for key, value in arguments.items()}
    client.call(1, "queue.declare", queue=name, durable=True, arguments=TARGET | named)
    return client, node.engine.vhost("/").queues[name]


def fill(client: Client, *bodies: bytes, to: str = SOURCE) -> None:
    for body in bodies:
        client.send(publish(1, "", to, body, delivery_mode=2))
    client.frames()


def reject(client: Client, count: int) -> None:
    """Take messages one by one, and want none of them again."""
    for _ in range(count):
        (got, *_) = client.exchange(method(1, "basic.get", queue=SOURCE))
        assert got.name == "basic.get-ok"
        client.send(method(1, "basic.reject", got["delivery_tag"], False))


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def there(home: Home, number: int = 1) -> list[bytes]:
    """What a queue of the home has; it is taken out."""
    found = []
    while got := home.queues[number].get(True, home.turn.now_ms):
        found.append(bytes(got[0].body))
    return found


def lose_home(node: GatewayNode) -> None:
    """The home is down, and all nodes agree on that."""
    node.link = None
    node.gateway.home_gone()
    node.end_turn()


def pass_time(node: GatewayNode, ms: int) -> None:
    node.engine.clock.ms += ms  # type: ignore[attr-defined]
    node.engine.tick()
    settle(node)


def state(queue: Queue) -> tuple[int, int, int]:
    queue.check()
    return queue.ready, queue.unacked, queue.buried


def test_a_message_stays_until_its_letter_is_on_the_other_disk() -> None:
    home, node = pair(durable=True)
    client, queue = declare(node)
    fill(client, b"one")
    reject(client, 1)
    node.end_turn()
    assert node.link is not None
    node.link.carry_out()
    home.end_turn()
    node.link.carry_back()
    node.end_turn()
    assert (state(queue), home.queues[1].ready) == ((0, 0, 1), 1)
    home.sync()
    settle(node)
    assert (state(queue), queue.total_bytes, home.queues[1].ready) == ((0, 0, 0), 0, 1)


@pytest.mark.parametrize("reason", ["rejected", "expired", "maxlen", "delivery_limit"])
def test_letters_wait_for_a_home_that_is_down(reason: str) -> None:
    """In order, whatever they died of; then new ones behind them."""
    home, node = pair()
    limits: dict[str, dict[str, Any]] = {
        "rejected": {},
        "expired": {"x_message_ttl": 100},
        "maxlen": {"x_max_length": 0},
        "delivery_limit": {"x_delivery_limit": 0},
    }
    client, queue = declare(node, **limits[reason])
    lose_home(node)

    def die(*bodies: bytes) -> None:
        fill(client, *bodies)
        if reason == "rejected":
            reject(client, len(bodies))
        elif reason == "expired":
            pass_time(node, 150)
        elif reason == "delivery_limit":
            for _ in bodies:
                got = client.exchange(method(1, "basic.get", queue=SOURCE))[0]
                client.send(method(1, "basic.nack", got["delivery_tag"], False, True))

    die(*numbers(0, 20))
    pass_time(node, 5000)
    assert state(queue) == (0, 0, 20)
    assert client.call(1, "basic.get", queue=SOURCE).name == "basic.get-empty"
    node.connect()
    die(*numbers(20, 30))
    for _ in range(10):
        pass_time(node, 1000)
    assert (state(queue), there(home)) == ((0, 0, 0), numbers(0, 30))


def test_a_home_that_comes_back_as_another_gets_what_the_first_did_not_answer() -> None:
    home, node = pair()
    client, queue = declare(node)
    fill(client, *numbers(0, 10))
    reject(client, 5)
    node.end_turn()
    reject(client, 5)
    node.end_turn()
    assert state(queue) == (0, 0, 10)
    # Nothing of it was carried: the home dies with what was on the way.
    home.start()
    node.connect()
    for _ in range(10):
        pass_time(node, 1000)
    assert (state(queue), there(home)) == ((0, 0, 0), numbers(0, 10))


def test_of_several_queues_only_those_that_have_it_not_get_it_again() -> None:
    home, node = pair(2)
    client, queue = declare(node, x_dead_letter_exchange="all")
    client.call(1, "exchange.declare", exchange="all", type="fanout")
    client.call(1, "queue.declare", queue="near")
    for bound in ("near", "q1", "q2"):
        client.call(1, "queue.bind", queue=bound, exchange="all")
    lose_home(node)
    fill(client, b"one")
    reject(client, 1)
    for _ in range(5):
        pass_time(node, 1000)
    near = node.engine.vhost("/").queues["near"]
    assert (state(queue), near.ready) == ((0, 0, 1), 1)
    node.connect()
    pass_time(node, 2000)
    assert (state(queue), near.ready) == ((0, 0, 0), 1)
    assert (there(home, 1), there(home, 2)) == ([b"one"], [b"one"])


def test_a_target_that_is_full_gets_its_letters_when_it_has_room() -> None:
    home, node = pair()
    home.queues[1].configure(max_length=3, overflow="reject-publish")
    client, queue = declare(node)
    fill(client, *numbers(0, 8))
    reject(client, 8)
    settle(node)
    got: list[bytes] = []
    for _ in range(20):
        pass_time(node, 2000)
        got += there(home)
    assert (state(queue), got) == ((0, 0, 0), numbers(0, 8))


def test_no_more_than_a_number_is_buried_and_nothing_expired_is_delivered() -> None:
    home, node = pair()
    client, queue = declare(node, x_message_ttl=100)
    lose_home(node)
    count = 5000
    fill(client, *numbers(0, count))
    client.send(publish(1, "", SOURCE, b"last", expiration="99"))
    pass_time(node, 200)
    assert state(queue) == (count + 1 - 4096, 0, 4096)
    assert client.call(1, "basic.get", queue=SOURCE).name == "basic.get-empty"
    client.send(method(1, "basic.consume", queue=SOURCE, consumer_tag="c", no_ack=True))
    pass_time(node, 100)
    assert [frame.name for frame in client.frames()] == ["basic.consume-ok"]
    node.connect()
    for _ in range(30):
        pass_time(node, 1000)
    assert client.frames() == []
    assert (state(queue), there(home)) == ((0, 0, 0), [*numbers(0, count), b"last"])
    client.send(publish(1, "", SOURCE, b"alive"))
    assert [frame.payload for frame in client.frames() if frame.kind == 3] == [b"alive"]


def test_too_many_for_a_limit_are_buried_a_number_at_a_time() -> None:
    home, node = pair()
    client, queue = declare(node, x_max_length=10)
    lose_home(node)
    fill(client, *numbers(0, 5000))
    assert state(queue) == (5000 - 4096, 0, 4096)
    node.connect()
    for _ in range(30):
        pass_time(node, 1000)
    assert (state(queue), there(home)) == ((10, 0, 0), numbers(0, 4990))


def test_a_purge_leaves_what_is_dead_already() -> None:
    home, node = pair()
    client, queue = declare(node)
    fill(client, *numbers(0, 6))
    lose_home(node)
    reject(client, 2)
    assert state(queue) == (4, 0, 2)
    assert client.call(1, "queue.purge", queue=SOURCE)["message_count"] == 4
    assert state(queue) == (0, 0, 2)
    node.connect()
    pass_time(node, 2000)
    assert (state(queue), there(home)) == ((0, 0, 0), numbers(0, 2))


def test_a_queue_is_not_empty_while_letters_wait_and_can_be_deleted() -> None:
    home, node = pair()
    client, queue = declare(node)
    fill(client, b"one", b"two")
    lose_home(node)
    reject(client, 1)
    client.call(1, "queue.purge", queue=SOURCE)
    closed = client.call(1, "queue.delete", queue=SOURCE, if_empty=True)
    assert (closed.name, closed["reply_code"]) == ("channel.close", 406)
    client.send(method(1, "channel.close-ok"))
    assert client.call(1, "channel.open").name == "channel.open-ok"
    assert client.call(1, "queue.delete", queue=SOURCE).name == "queue.delete-ok"
    node.connect()
    pass_time(node, 2000)
    assert (there(home), queue.deleted) == ([], True)
    # One of the same name begins with nothing.
    _, again = declare(node)
    assert state(again) == (0, 0, 0)


def test_an_unused_queue_stays_until_its_letters_are_safe() -> None:
    home, node = pair()
    client = node.client()
    arguments = TARGET | {"x-expires": 500}
    client.call(1, "queue.declare", queue=SOURCE, auto_delete=True, arguments=arguments)
    queues = node.engine.vhost("/").queues
    fill(client, b"one")
    client.send(method(1, "basic.consume", queue=SOURCE, consumer_tag="c"))
    lose_home(node)
    client.send(method(1, "basic.reject", 1, False))
    client.send(method(1, "basic.cancel", consumer_tag="c"))
    pass_time(node, 5000)
    assert state(queues[SOURCE]) == (0, 0, 1)
    node.connect()
    pass_time(node, 2000)
    assert there(home) == [b"one"]
    assert SOURCE not in queues


def test_without_a_way_on_a_dead_message_is_dropped() -> None:
    _, node = pair()
    lose_home(node)
    client, queue = declare(node, x_dead_letter_routing_key="nobody")
    fill(client, b"one", b"two")
    reject(client, 1)
    assert state(queue) == (1, 0, 0)
    node.engine.vhost("/").queues.pop("q1")
    _, other = declare(node, "other")
    fill(client, b"one", to="other")
    got = client.exchange(method(1, "basic.get", queue="other"))[0]
    client.send(method(1, "basic.reject", got["delivery_tag"], False))
    assert state(other) == (0, 0, 0)


def test_a_message_that_expires_at_once_is_kept_until_it_is_safe() -> None:
    home, node = pair()
    client, queue = declare(node, x_message_ttl=0)
    lose_home(node)
    fill(client, *numbers(0, 3))
    assert state(queue) == (0, 0, 3)
    node.connect()
    pass_time(node, 2000)
    pass_time(node, 2000)
    assert (state(queue), there(home)) == ((0, 0, 0), numbers(0, 3))


def test_one_death_is_one_entry_however_often_it_is_tried() -> None:
    home, node = pair()
    client, _ = declare(node)
    lose_home(node)
    died_s = node.engine.clock.wall_s()
    fill(client, b"one")
    reject(client, 1)
    for _ in range(5):
        pass_time(node, 3000)
    node.connect()
    pass_time(node, 3000)
    message, *_ = home.queues[1].get(True, home.turn.now_ms)  # type: ignore[misc]
    (death,) = decode_properties(message.header)["headers"]["x-death"]
    assert (death["count"], death["reason"], death["queue"]) == (1, "rejected", SOURCE)
    assert death["time"] == died_s
    assert node.engine.totals.messages["/"]["dead_lettered_rejected"] == 1

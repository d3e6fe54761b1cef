"""Paused consumers: all nodes agree on it, it outlives restarts, and it goes with its queue."""

from __future__ import annotations

import pytest
from pair import Client, make_bare_engine, make_engine, method, publish
from parliament import Parliament

from warren.engine.engine import Engine
from warren.engine.metadata import MetadataKeeper
from warren.engine.pausing import Pause, pause_of
from warren.model.errors import NotFound, Postponed


@pytest.fixture
def three() -> Parliament:
    parliament = Parliament()
    parliament.client(0).send(method(1, "queue.declare", 0, "q", durable=True))
    parliament.settle()
    return parliament


def pauses(parliament: Parliament) -> set[Pause | None]:
    queues = [engine.vhosts["/"].queues["q"] for engine in parliament.engines]
    assert all(queue.paused == (pause_of(queue) is not None) for queue in queues)
    return {pause_of(queue) for queue in queues}


def test_a_pause_is_known_on_all_nodes(three: Parliament) -> None:
    three.do(lambda engine: engine.pause_queue("/", "q", "anna", 5), node=1)
    assert pauses(three) == {Pause("anna", 5)}
    # The last word counts, on all nodes.
    three.do(lambda engine: engine.pause_queue("/", "q", "bert", 6), node=2)
    assert pauses(three) == {Pause("bert", 6)}
    assert three.are_equal()
    three.do(lambda engine: engine.resume_queue("/", "q"))
    assert pauses(three) == {None}
    assert three.engines[1].resume_queue("/", "q") is False
    assert three.are_equal()
    with pytest.raises(NotFound):
        three.engines[0].pause_queue("/", "none", "anna", 5)


def test_two_operators_at_once(three: Parliament) -> None:
    """One pauses and one resumes before either has been agreed on: the order decides alike."""
    three.do(lambda engine: engine.pause_queue("/", "q", "anna", 5))
    for node, act in enumerate(
        (
            lambda engine: engine.pause_queue("/", "q", "bert", 6),
            lambda engine: engine.resume_queue("/", "q"),
            lambda engine: engine.pause_queue("/", "q", "carl", 7),
        )
    ):
        with pytest.raises(Postponed):
            act(three.engines[node])
    three.settle()
    assert pauses(three) == {Pause("carl", 7)}
    assert three.are_equal()


def test_it_is_there_after_a_restart_and_in_an_image(three: Parliament) -> None:
    three.do(lambda engine: engine.pause_queue("/", "q", "anna", 5))
    again = make_bare_engine(node_name="n0")
    keeper = three.keeper(again, [])
    for record in three.records[0]:
        keeper.apply(record)
    assert pause_of(again.vhosts["/"].queues["q"]) == Pause("anna", 5)
    assert again.vhosts["/"].queues["q"].paused
    far_behind = make_bare_engine(node_name="n0")
    keeper = three.keeper(far_behind, [])
    keeper.attach()
    keeper.take_over(three.index, three.keepers[0].snapshot())
    assert far_behind.vhosts["/"].queues["q"].paused
    # An image with another pause, and then with none.
    three.do(lambda engine: engine.pause_queue("/", "q", "bert", 6))
    keeper.take_over(three.index, three.keepers[0].snapshot())
    assert keeper.snapshot() == three.keepers[0].snapshot()
    three.do(lambda engine: engine.resume_queue("/", "q"))
    keeper.take_over(three.index, three.keepers[0].snapshot())
    assert not far_behind.vhosts["/"].queues["q"].paused
    assert keeper.snapshot() == three.keepers[0].snapshot()


def test_it_goes_with_its_queue(three: Parliament) -> None:
    three.do(lambda engine: engine.pause_queue("/", "q", "anna", 5))
    three.engines[0].drop_queue(three.engines[0].vhosts["/"].queues["q"])
    three.settle()
    assert three.engines[1].vhosts["/"].pauses == {}
    assert b"pause" not in three.keepers[1].snapshot()
    three.client(0).send(method(1, "queue.declare", 0, "q", durable=True))
    three.settle()
    assert pauses(three) == {None}


def deliveries(client: Client) -> int:
    return [frame.name for frame in client.frames()].count("basic.deliver")


def test_what_clients_see() -> None:
    engine = make_engine()
    client = Client(engine, channels=1)
    client.call(1, "queue.declare", 0, "q")
    client.call(1, "basic.qos", 0, 2, False)
    client.exchange(method(1, "basic.consume", 0, "q", "c"))
    for _ in range(4):
        client.send(publish(1, "", "q", b"x"))
    assert deliveries(client) == 2
    engine.pause_queue("/", "q", "anna", 5)
    queue = engine.vhosts["/"].queues["q"]
    # What is held is settled, and makes no room for more.
    client.send(method(1, "basic.ack", 2, True))
    client.send(publish(1, "", "q", b"x"))
    assert (deliveries(client), queue.ready, queue.unacked) == (0, 3, 0)
    # Who takes them one by one is given none either.
    (answer,) = client.exchange(method(1, "basic.get", 0, "q"))
    assert answer.name == "basic.get-empty"
    other = Client(engine, channels=1)
    other.exchange(method(1, "basic.consume", 0, "q", "d"))
    assert deliveries(other) == 0
    engine.resume_queue("/", "q")
    engine.run_effects()
    client.send(b"")
    other.send(b"")
    assert deliveries(client) + deliveries(other) == 3
    assert queue.ready == 0


def keeper_of(engine: Engine) -> tuple[MetadataKeeper, list[bytes]]:
    records: list[bytes] = []
    keeper = MetadataKeeper(engine, records.append)
    return keeper, records


def test_a_node_by_itself_keeps_it_for_queues_that_it_keeps() -> None:
    engine = make_bare_engine()
    keeper, records = keeper_of(engine)
    keeper.attach()
    engine.add_vhost("/")
    engine.directory.add_user("guest", "guest", ("administrator",))
    engine.directory.set_permissions("guest", "/", ".*", ".*", ".*")
    client = Client(engine, channels=1)
    client.call(1, "queue.declare", 0, "kept", durable=True)
    client.call(1, "queue.declare", 0, "transient")
    for name in ("kept", "transient"):
        engine.pause_queue("/", name, "anna", 5)
        assert engine.vhosts["/"].queues[name].paused
    again = make_bare_engine()
    restored, _ = keeper_of(again)
    for record in records:
        restored.apply(record)
    assert again.vhosts["/"].queues["kept"].paused
    assert again.vhosts["/"].pauses == {"kept": Pause("anna", 5)}

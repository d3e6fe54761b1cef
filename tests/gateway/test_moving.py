"""A queue gets another home: what becomes of its clients' methods, one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from moving_nodes import QUEUE, Nodes
from pair import Client, Received, method, publish
from small_disk import tiny_room

from warren.engine import moving
from warren.engine.consume import delete_if_unused
from warren.gateway.memory_link import MemoryLink
from warren.model.queue_arguments import QueueDeclaration

Make = Callable[[], Nodes]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Nodes] = []

    def begin() -> Nodes:
        made.append(Nodes())
        return made[-1]

    yield begin
    for nodes in made:
        nodes.end()


def named(frames: list[Received], name: str) -> list[Received]:
    return [frame for frame in frames if frame.name == name]


def bodies(frames: list[Received]) -> list[bytes]:
    return [frame.payload for frame in frames if frame.kind == 3]


def call(nodes: Nodes, client: Client, channel: int, name: str, *values: Any) -> Received:
    """A method that other nodes have to be asked for."""
    client.send(method(channel, name, *values))
    nodes.settle()
    (answer,) = client.frames()
    return answer


def consumer(nodes: Nodes, name: str, **arguments: Any) -> Client:
    client = nodes.nodes[name].client()
    client.send(method(2, "basic.consume", queue=QUEUE, consumer_tag="c", arguments=arguments))
    nodes.settle()
    assert [frame.name for frame in client.frames()] == ["basic.consume-ok"]
    return client


def move(nodes: Nodes, master: str | None, planned: bool = False) -> None:
    nodes.move(master, planned=planned)
    nodes.settle()


@pytest.mark.parametrize("name", "abc")
def test_a_consumer_that_wants_to_hear_of_it_is_cancelled(make: Make, name: str) -> None:
    nodes = make()
    client = consumer(nodes, name, **{"x-cancel-on-ha-failover": True})
    silent = consumer(nodes, name)
    move(nodes, "b")
    assert [frame.name for frame in client.frames()] == ["basic.cancel"]
    assert silent.frames() == []
    client.send(method(1, "confirm.select") + publish(1, "", QUEUE, b"one"))
    nodes.settle()
    assert [f.name for f in client.frames() if f.name] == ["confirm.select-ok", "basic.ack"]
    assert bodies(silent.frames()) == [b"one"]


@pytest.mark.parametrize("name", "abc")
def test_without_a_master_publishes_are_refused_and_consumers_cancelled(
    make: Make, name: str
) -> None:
    nodes = make()
    client = consumer(nodes, name)
    client.call(1, "confirm.select")
    move(nodes, None)
    assert [frame.name for frame in client.frames()] == ["basic.cancel"]
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    assert [frame.name for frame in client.frames()] == ["basic.nack"]
    assert "is down or inaccessible" in nodes.nodes[name].queue.absence
    move(nodes, "c")
    client.send(publish(1, "", QUEUE, b"two"))
    nodes.settle()
    assert [frame.name for frame in client.frames()] == ["basic.ack"]
    assert [entry.message.body for entry in nodes.ring.committed] == [b"two"]


@pytest.mark.parametrize("name", "abc")
def test_bindings_lead_to_wherever_the_queue_is(make: Make, name: str) -> None:
    nodes = make()
    node = nodes.nodes[name]
    client = node.client()
    client.call(1, "queue.bind", 0, QUEUE, "amq.topic", "a.*")
    client.call(1, "confirm.select")
    for number, master in enumerate("bcab"):
        client.send(publish(1, "amq.topic", "a.b", b"%d" % number))
        move(nodes, master)
        assert named(client.frames(), "basic.ack")
    assert [entry.message.body for entry in nodes.ring.committed] == [b"0", b"1", b"2", b"3"]
    assert node.queue.sources == {"amq.topic"}


def test_a_get_that_waits_for_the_home_before_begins_anew(make: Make) -> None:
    nodes = make()
    client = nodes.nodes["c"].client()
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    client.send(method(2, "basic.get", 0, QUEUE))
    nodes.nodes["c"].end_turn()
    nodes.cut("c", "a")
    move(nodes, "b")
    frames = client.frames()
    assert [frame.name for frame in frames if frame.name] == ["basic.get-ok"]
    assert frames[0]["redelivered"] is False
    client.send(method(2, "basic.ack", frames[0]["delivery_tag"]))
    nodes.settle()
    assert nodes.ring.removed == {1}


def test_an_acknowledgement_of_what_the_home_before_gave_out_does_nothing(make: Make) -> None:
    nodes = make()
    client = nodes.nodes["c"].client()
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    client.send(method(2, "basic.get", 0, QUEUE))
    nodes.settle()
    old = client.frames()[0]["delivery_tag"]
    move(nodes, "b")
    client.send(method(2, "basic.get", 0, QUEUE))
    nodes.settle()
    again = client.frames()[0]
    assert again["redelivered"] is True
    client.send(method(2, "basic.ack", old))
    nodes.settle()
    assert nodes.ring.removed == set()
    client.send(method(2, "basic.ack", again["delivery_tag"]))
    nodes.settle()
    assert nodes.ring.removed == {1}


def test_a_home_that_does_not_serve_yet_is_asked_again(make: Make) -> None:
    nodes = make()
    client = nodes.nodes["c"].client()
    client.call(1, "confirm.select")
    nodes.move("b")
    nodes.hear("c")
    client.send(publish(1, "", QUEUE, b"one"))
    client.send(method(2, "basic.consume", 0, QUEUE, "c"))
    for _ in range(5):
        for link in nodes.links.values():
            link.carry_out()
            link.carry_back()
        nodes.step_time()
        nodes.nodes["c"].end_turn()
    assert client.frames() == []
    nodes.settle()
    heard = [frame.name for frame in client.frames() if frame.name]
    assert sorted(heard) == ["basic.ack", "basic.consume-ok", "basic.deliver"]


def test_a_home_that_does_not_know_yet_that_a_queue_moves_is_asked_again(make: Make) -> None:
    """It has just started, and knows only where the queue was when it was declared."""
    nodes = make()
    client = nodes.nodes["c"].client()
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    began = nodes.nodes["b"]
    known = began.queue
    fresh: Any = began.homes.make_remote(
        QUEUE, known.vhost, began.engine.effects, known.declaration, None, known.effective, "a"
    )
    fresh.number = known.number
    began.engine.vhost("/").queues[QUEUE] = fresh
    nodes.move("b")
    nodes.hear("c")
    client.send(method(2, "basic.get", 0, QUEUE, True))
    for _ in range(5):
        for link in nodes.links.values():
            link.carry_out()
            link.carry_back()
        nodes.step_time()
        nodes.nodes["c"].end_turn()
    assert client.frames() == []
    nodes.settle()
    assert bodies(client.frames()) == [b"one"]


def test_a_cancel_that_the_home_before_has_heard_reaches_the_next(make: Make) -> None:
    nodes = make()
    client = consumer(nodes, "c")
    client.send(method(2, "basic.cancel", "c"))
    nodes.nodes["c"].end_turn()
    move(nodes, "b")
    assert [frame.name for frame in client.frames()] == ["basic.cancel-ok"]
    assert nodes.nodes["b"].attached() == []


@pytest.mark.parametrize("name", "abc")
def test_declare_and_purge_are_answered_by_the_new_home(make: Make, name: str) -> None:
    nodes = make()
    client = nodes.nodes[name].client()
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    move(nodes, "b")
    declared = call(nodes, client, 1, "queue.declare", 0, QUEUE, True)
    assert (declared["message_count"], declared["consumer_count"]) == (1, 0)


def test_an_auto_delete_queue_does_not_go_with_what_stood_for_it_before(make: Make) -> None:
    nodes = make()
    old = nodes.nodes["a"].queue
    old.declaration = QueueDeclaration(True, True, False, {})
    client = consumer(nodes, "a")
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    move(nodes, "b")
    delete_if_unused(nodes.nodes["a"].engine, old)
    client.send(method(2, "channel.close", 200, "", 0, 0))
    nodes.settle()
    assert named(client.frames(), "channel.close-ok")
    assert not old.deleted
    assert old.dropping is None


def test_a_master_that_is_handed_over_delivers_nothing_again(make: Make) -> None:
    nodes = make()
    clients = [consumer(nodes, name, **{"x-cancel-on-ha-failover": True}) for name in "abc"]
    publisher = nodes.nodes["c"].client()
    publisher.send(b"".join(publish(1, "", QUEUE, b"%d" % i) for i in range(9)))
    nodes.settle()
    held = [client.frames() for client in clients]
    assert sorted(body for frames in held for body in bodies(frames)) == [
        b"%d" % i for i in range(9)
    ]
    for master in "bca":
        move(nodes, master, planned=True)
        assert [client.frames() for client in clients] == [[], [], []]
        assert nodes.nodes[master].attached() == ["test (2) c"] * 3
        for client, frames in zip(clients, held, strict=True):
            tag = frames.pop(0)["delivery_tag"]
            del frames[:2]
            client.send(method(2, "basic.ack", tag))
        nodes.settle()
    assert len(nodes.ring.removed) == 9
    publisher.send(publish(1, "", QUEUE, b"last"))
    nodes.settle()
    assert [body for client in clients for body in bodies(client.frames())] == [b"last"]


def test_what_the_next_master_holds_itself_stays_out_when_the_old_one_lets_go_first(
    make: Make,
) -> None:
    """Its copy does not serve yet when it hears that the home before is none any more."""
    nodes = make()
    client = nodes.nodes["b"].client()
    client.send(publish(1, "", QUEUE, b"one") + publish(1, "", QUEUE, b"two"))
    nodes.settle()
    got = call_get(nodes, client)
    assert bodies(got) == [b"one"]
    nodes.move("b", planned=True)
    nodes.news["b"].clear()
    node = nodes.nodes["b"]
    remote = node.queue
    moving.rehome(node.engine, remote, "b", True)
    let_go(nodes)
    assert len(remote.slots_out()) == 1
    node.view("b", True)
    nodes.settle()
    assert bodies(call_get(nodes, client)) == [b"two"]
    client.send(method(2, "basic.ack", named(got, "basic.get-ok")[0]["delivery_tag"]))
    nodes.settle()
    assert nodes.ring.removed == {1}


def test_it_is_forgotten_if_the_old_master_is_it_again(make: Make) -> None:
    nodes = make()
    client = nodes.nodes["b"].client()
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    got = call_get(nodes, client)
    nodes.move("b", planned=True)
    nodes.news["b"].clear()
    node = nodes.nodes["b"]
    moving.rehome(node.engine, node.queue, "b", True)
    let_go(nodes)
    move(nodes, "a")
    assert node.queue.slots_out() == []
    client.send(method(2, "basic.ack", named(got, "basic.get-ok")[0]["delivery_tag"]))
    nodes.settle()
    assert nodes.ring.removed == set()


@pytest.mark.parametrize("way", ["got", "settled", "link"])
def test_who_hears_late_that_a_queue_went_and_came_back_gives_back_what_it_holds(
    make: Make, way: str
) -> None:
    """The home has let go of nothing: it had the queue again before it gave anything out."""
    nodes = make()
    client = nodes.nodes["c"].client()
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    got = call_get(nodes, client)
    node = nodes.nodes["c"]
    node.view("b", True)
    if way == "settled":
        client.send(method(2, "basic.ack", named(got, "basic.get-ok")[0]["delivery_tag"]))
    if way == "link":
        nodes.cut("c", "b")
    node.end_turn()
    node.view("a")
    nodes.settle()
    assert nodes.ring.removed == ({1} if way == "settled" else set())
    assert nodes.nodes["a"].queue.ready == (way != "settled")


def let_go(nodes: Nodes) -> None:
    """The first node hears that it is the master no more, and its frames arrive."""
    for _ in range(5):
        nodes.hear("a")
        for (gateway, home), link in list(nodes.links.items()):
            link.carry_out()
            nodes.nodes[home].end_turn()
            link.carry_back()
            nodes.nodes[gateway].end_turn()


def test_a_handover_that_is_heard_of_after_the_old_master_lets_go(make: Make) -> None:
    """The view and the frames of the old master come by different ways."""
    nodes = make()
    client = consumer(nodes, "c")
    client.send(b"".join(publish(1, "", QUEUE, b"%d" % i) for i in range(3)))
    nodes.settle()
    held = named(client.frames(), "basic.deliver")
    assert len(held) == 3
    nodes.move("b", planned=True)
    let_go(nodes)
    # What is settled now is settled at the next one.
    client.send(method(2, "basic.ack", held[0]["delivery_tag"]))
    nodes.settle()
    assert client.frames() == []
    client.send(method(2, "basic.ack", held[2]["delivery_tag"], True))
    nodes.settle()
    assert nodes.ring.removed == {1, 2, 3}


def test_what_is_out_comes_again_if_it_was_no_handover(make: Make) -> None:
    nodes = make()
    client = consumer(nodes, "c")
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    assert bodies(client.frames()) == [b"one"]
    nodes.move("b")
    let_go(nodes)
    nodes.settle()
    (again,) = named(client.frames(), "basic.deliver")
    assert again["redelivered"] is True


@pytest.mark.parametrize("when", ["at once", "later"])
def test_what_a_home_gives_out_when_it_has_the_queue_again_is_settled_there(
    make: Make, when: str
) -> None:
    """It has let go of it and got it back; for a while its gateway takes that for a handover."""
    nodes = make()
    client = nodes.nodes["c"].client()
    client.send(publish(1, "", QUEUE, b"one") + publish(1, "", QUEUE, b"two"))
    nodes.settle()
    assert bodies(call_get(nodes, client)) == [b"one"]
    nodes.move(None)
    nodes.move("a")
    nodes.news["b"].clear()
    nodes.news["c"].clear()
    for _ in range(5):
        nodes.hear("a")
        carry(nodes)
    remote = nodes.nodes["c"].queue
    assert remote.adopting
    client.send(method(2, "basic.get", 0, QUEUE, False) * 2)
    for _ in range(5):
        carry(nodes)
    got = client.frames()
    assert sorted(bodies(got)) == [b"one", b"two"]
    if when == "later":
        give_up_waiting(nodes)
    for frame in named(got, "basic.get-ok"):
        client.send(method(2, "basic.ack", frame["delivery_tag"]))
    give_up_waiting(nodes)
    assert not remote.adopting
    assert nodes.ring.removed == {1, 2}
    assert nodes.nodes["a"].queue.out == set()


def give_up_waiting(nodes: Nodes) -> None:
    """So long that no handover is expected any more."""
    nodes.settle()
    nodes.settle()


def carry(nodes: Nodes) -> None:
    """What is on its way arrives, and no time goes by."""
    for node in nodes.nodes.values():
        node.end_turn()
    for (gateway, home), link in list(nodes.links.items()):
        link.carry_out()
        nodes.nodes[home].end_turn()
        link.carry_back()
        nodes.nodes[gateway].end_turn()


@pytest.mark.parametrize("name", "abc")
def test_a_consumer_holds_no_more_than_it_may_after_a_handover(make: Make, name: str) -> None:
    """What it holds takes up its room at the next home, too."""
    nodes = make()
    client = nodes.nodes[name].client()
    client.send(method(2, "basic.qos", 0, 4, False))
    client.send(method(2, "basic.consume", queue=QUEUE, consumer_tag="c"))
    client.send(b"".join(publish(1, "", QUEUE, b"%d" % i) for i in range(20)))
    nodes.settle()
    held = named(client.frames(), "basic.deliver")
    assert len(held) == 4
    for master in "bca":
        move(nodes, master, planned=True)
        assert client.frames() == []
        assert nodes.ring.master is not None
        assert len(nodes.ring.master.out) == 4
        for _ in range(3):
            client.send(method(2, "basic.ack", held.pop(0)["delivery_tag"]))
        nodes.settle()
        held += named(client.frames(), "basic.deliver")
        assert len(held) == len(nodes.ring.master.out) == 4
    assert not any(delivery["redelivered"] for delivery in held)


def call_get(nodes: Nodes, client: Client) -> list[Received]:
    client.send(method(2, "basic.get", 0, QUEUE, False))
    nodes.settle()
    return client.frames()


def test_what_is_acknowledged_while_a_master_is_handed_over_is_not_lost(make: Make) -> None:
    nodes = make()
    client = consumer(nodes, "c")
    client.send(publish(1, "", QUEUE, b"one") + publish(1, "", QUEUE, b"two"))
    nodes.settle()
    first, second = named(client.frames(), "basic.deliver")
    nodes.move("b", planned=True)
    nodes.hear("c")
    client.send(method(2, "basic.ack", first["delivery_tag"]))
    client.send(method(2, "basic.nack", second["delivery_tag"], False, True))
    nodes.settle()
    assert nodes.ring.removed == {1}
    (again,) = named(client.frames(), "basic.deliver")
    assert again["redelivered"] is True


@pytest.mark.parametrize("name", "abc")
@pytest.mark.parametrize("shared", [False, True])
def test_what_comes_again_finds_room_before_the_old_is_settled(
    make: Make, name: str, shared: bool
) -> None:
    nodes = make()
    client = nodes.nodes[name].client()
    client.call(2, "basic.qos", 0, 2, shared)
    client.send(method(2, "basic.consume", 0, QUEUE, "c"))
    client.send(b"".join(publish(1, "", QUEUE, b"%d" % i) for i in range(5)))
    nodes.settle()
    old = named(client.frames(), "basic.deliver")
    assert len(old) == 2
    move(nodes, "b")
    frames = client.frames()
    assert bodies(frames) == [b"0", b"1"]
    again = named(frames, "basic.deliver")
    assert [frame["redelivered"] for frame in again] == [True, True]
    client.send(method(2, "basic.ack", old[-1]["delivery_tag"], True))
    nodes.settle()
    assert client.frames() == []
    client.send(method(2, "basic.ack", again[-1]["delivery_tag"], True))
    nodes.settle()
    assert bodies(client.frames()) == [b"2", b"3"]
    assert nodes.ring.removed == {1, 2}


@pytest.mark.parametrize("name", "abc")
def test_with_a_stash_publishes_wait_for_a_master(name: str) -> None:
    nodes = Nodes(stash_room=tiny_room())
    client = nodes.nodes[name].client()
    client.call(1, "confirm.select")
    move(nodes, None)
    expected = [b"%d" % i for i in range(50)]
    for body in expected:
        client.send(publish(1, "", QUEUE, body))
    nodes.settle()
    assert client.frames() == []
    assert nodes.nodes[name].queue.stashed_count > 40
    move(nodes, "c")
    assert {frame.name for frame in client.frames()} == {"basic.ack"}
    assert [entry.message.body for entry in nodes.ring.committed] == expected
    nodes.end()


def test_what_waits_for_a_master_is_not_sent_before_there_is_one() -> None:
    """A retry that was due from before must not make the queue look as if it had its home again."""
    nodes = Nodes(stash_room=tiny_room())
    client, queue = nodes.nodes["b"].client(), nodes.nodes["b"].queue
    client.call(1, "confirm.select")
    move(nodes, None)
    client.send(publish(1, "", QUEUE, b"one"))
    nodes.settle()
    queue.follow_again()
    nodes.settle()
    assert client.frames() == []
    assert queue.absence is not None
    # It is back where it was.
    move(nodes, "a")
    assert queue.absence is None
    assert [frame.name for frame in client.frames()] == ["basic.ack"]
    assert [entry.message.body for entry in nodes.ring.committed] == [b"one"]
    nodes.end()


def test_a_node_that_is_forgotten_takes_no_link_of_its_next_life_along(make: Make) -> None:
    """One that is far behind may hear of both at once, when the next life is there already."""
    nodes = make()
    homes = nodes.nodes["b"].homes
    for incarnation, is_kept in ((2, True), (1, False)):
        link = MemoryLink("b", 1, "a", incarnation)
        nodes.nodes["a"].homes.make_home_sink(link.accepted)
        homes.make_gateway_sink(link.dialled)
        homes.nodes_are({"a": (1, True), "b": (1, True)})
        homes.nodes_are({"b": (1, True)})
        assert homes.gateway_to("a").has_link is is_kept

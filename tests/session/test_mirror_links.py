"""Mirrors by an operator's word: all nodes agree on them, and they go with queue and node."""

from __future__ import annotations

import pytest
from pair import make_bare_engine, method
from parliament import Parliament

from warren.engine.mirror_links import links_of
from warren.model.errors import NotFound, Postponed, PreconditionFailed


@pytest.fixture
def three() -> Parliament:
    parliament = Parliament()
    parliament.client(0).send(method(1, "queue.declare", 0, "q", durable=True))
    parliament.settle()
    return parliament


def links(parliament: Parliament) -> set[tuple[str, ...]]:
    return {links_of(engine.vhosts["/"].queues["q"]) for engine in parliament.engines}


def test_links_are_on_all_nodes(three: Parliament) -> None:
    three.do(lambda engine: engine.add_mirror_link("/", "q", "n2"), node=1)
    three.do(lambda engine: engine.add_mirror_link("/", "q", "n1"))
    assert links(three) == {("n2", "n1")}
    assert three.engines[0].add_mirror_link("/", "q", "n1") is False
    three.do(lambda engine: engine.remove_mirror_link("/", "q", "n2"))
    assert links(three) == {("n1",)}
    assert three.engines[0].remove_mirror_link("/", "q", "n2") is False
    assert three.are_equal()


def test_links_are_there_after_a_restart_and_in_an_image(three: Parliament) -> None:
    three.do(lambda engine: engine.add_mirror_link("/", "q", "n2"))
    again = make_bare_engine(node_name="n0")
    keeper = three.keeper(again, [])
    for record in three.records[0]:
        keeper.apply(record)
    assert links_of(again.vhosts["/"].queues["q"]) == ("n2",)
    far_behind = make_bare_engine(node_name="n0")
    keeper = three.keeper(far_behind, [])
    keeper.attach()
    keeper.take_over(three.index, three.keepers[0].snapshot())
    assert links_of(far_behind.vhosts["/"].queues["q"]) == ("n2",)
    assert keeper.snapshot() == three.keepers[0].snapshot()


def test_links_go_with_their_queue(three: Parliament) -> None:
    three.do(lambda engine: engine.add_mirror_link("/", "q", "n2"))
    three.engines[0].drop_queue(three.engines[0].vhosts["/"].queues["q"])
    three.settle()
    assert three.engines[1].vhosts["/"].mirror_links == {}
    assert b"mirror_link" not in three.keepers[1].snapshot()
    # One of the same name is another queue.
    three.client(0).send(method(1, "queue.declare", 0, "q", durable=True))
    three.settle()
    assert links(three) == {()}
    assert three.are_equal()


def test_a_link_that_comes_after_the_end_of_its_queue_has_no_effect(three: Parliament) -> None:
    engine = three.engines[0]
    engine.drop_queue(engine.vhosts["/"].queues["q"])
    with pytest.raises(Postponed):
        engine.add_mirror_link("/", "q", "n2")
    three.settle()
    assert engine.vhosts["/"].mirror_links == {}
    assert three.are_equal()


def test_links_go_with_their_node(three: Parliament) -> None:
    three.do(lambda engine: engine.add_mirror_link("/", "q", "n2"))
    three.do(lambda engine: engine.add_mirror_link("/", "q", "n1"))
    three.index += 1
    for keeper in three.keepers:
        keeper.forget_all_of(three.index, "n2")
    assert links(three) == {("n1",)}
    assert three.are_equal()


def test_a_node_that_is_down_for_a_while_keeps_its_links(three: Parliament) -> None:
    three.do(lambda engine: engine.add_mirror_link("/", "q", "n2"))
    three.index += 1
    for keeper in three.keepers:
        keeper.forget_transient(three.index, "n2")
    assert links(three) == {("n2",)}


def test_what_can_have_no_mirrors_has_no_links(three: Parliament) -> None:
    client = three.client(0)
    client.send(method(1, "queue.declare", 0, "own", exclusive=True))
    three.settle()
    with pytest.raises(PreconditionFailed, match="exclusive"):
        three.engines[0].add_mirror_link("/", "own", "n1")
    with pytest.raises(NotFound):
        three.engines[0].add_mirror_link("/", "none", "n1")

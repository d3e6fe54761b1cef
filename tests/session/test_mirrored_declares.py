"""Queues under a mirroring policy: their first view, their homes, and where their mirrors go."""

from __future__ import annotations

from typing import Any

import pytest
from assembly import Assembly
from pair import Client, make_bare_engine, method, publish
from parliament import FarQueue, Others

from warren.cluster.metadata import View
from warren.cluster.metadata_commands import (
    Expand,
    Forget,
    NodeDown,
    NodeUp,
    Register,
)
from warren.node.placement import PATIENCE_MS
from warren.node.views import QueueViews


@pytest.fixture
def three() -> Assembly:
    return Assembly()


def declare(client: Client, name: str, **options: Any) -> None:
    client.send(method(1, "queue.declare", 0, name, **{"durable": True, **options}))


def declared(assembly: Assembly, name: str, node: int = 0, **options: Any) -> Client:
    client = assembly.client(node)
    declare(client, name, **options)
    assembly.settle()
    assert [frame.name for frame in client.frames()] == ["queue.declare-ok"]
    return client


def test_declare_is_answered_when_all_nodes_know_the_first_view(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    client = three.client(1)
    declare(client, "m1")
    three.apply_definitions()
    assert client.frames() == []
    assert all(engine.vhosts["/"].queues["m1"].awaits_view for engine in three.engines)
    three.place()
    three.decide()
    three.go_on()
    assert not any(engine.vhosts["/"].queues["m1"].awaits_view for engine in three.engines)
    assert client.frames() == []
    three.settle()
    assert [frame.name for frame in client.frames()] == ["queue.declare-ok"]
    names = ("n1", "n0", "n2")
    assert three.view("m1") == View(1, "n1", names, (), names)
    assert [mirrors.told for mirrors in three.mirrors] == [[("m1", three.view("m1"), True)]] * 3
    assert three.are_equal()


def test_nobody_can_put_anything_into_a_queue_before_its_first_view(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    owner, publisher, getter, binder = (three.client(0) for _ in range(4))
    declare(owner, "m1")
    three.apply_definitions()
    publisher.send(publish(1, "", "m1", b"early"))
    getter.send(method(1, "basic.get", 0, "m1", True))
    binder.send(method(1, "queue.bind", 0, "m1", "amq.fanout", ""))
    queue = three.engines[0].vhosts["/"].queues["m1"]
    assert queue.ready == 0
    assert queue.number not in three.engines[0].numbered
    assert getter.frames() == binder.frames() == []
    three.settle()
    assert queue.ready == 0
    assert three.engines[0].numbered[queue.number] is queue
    assert [frame.name for frame in getter.frames()] == ["basic.get-empty"]
    assert [frame.name for frame in binder.frames()] == ["queue.bind-ok"]
    for route in (("", "m1"), ("amq.fanout", "")):
        publisher.send(publish(1, *route, b"later"))
    assert queue.ready == 2


def test_a_generated_name_outlasts_the_wait_for_a_view(three: Assembly) -> None:
    three.set_policy("ha", pattern=".*", ha_mode="all")
    client = declared(three, "", durable=False)
    assert len(three.engines[2].vhosts["/"].queues) == 1
    assert client.frames() == []


def test_exclusive_queues_have_no_mirrors(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    declared(three, "m1", durable=False, exclusive=True)
    assert three.metadata.views() == {}


def test_without_mirrors_on_this_node_nothing_waits(three: Assembly) -> None:
    for engine in three.engines:
        engine.mirrors = None
    three.lead(-1)
    three.set_policy("ha", ha_mode="all")
    declared(three, "m1")
    assert three.metadata.views() == {}


def test_a_queue_that_goes_before_its_view_lets_everybody_go(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    client, other = three.client(0), three.client(1)
    declare(client, "m1", durable=False)
    three.apply_definitions()
    other.send(method(1, "queue.declare", 0, "m1", True))
    assert three.decree(NodeDown("n0", 1)).name == "DONE"
    three.settle()
    (answer,) = other.frames()
    assert answer["reply_code"] == 404
    assert three.metadata.views() == {}


def test_a_home_that_is_down_before_the_view_is_waited_for_by_nobody(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    client, other = three.client(0), three.client(1)
    declare(client, "m1")
    three.apply_definitions()
    other.send(method(1, "queue.declare", 0, "m1", True))
    three.decree(NodeDown("n0", 1))
    three.settle()
    (answer,) = other.frames()
    assert answer["reply_code"] == 404
    assert three.metadata.views() == {}
    three.decree(NodeUp("n0", 1))
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert view.in_sync == ("n0", "n1", "n2")


def test_a_home_that_restarts_before_the_view_may_hold_something(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    declare(three.client(0), "m1")
    three.apply_definitions()
    three.decree(Register("n0", 2, False))
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert (view.master, view.in_sync, view.learners) == ("n0", ("n0",), ("n1", "n2"))


def test_a_policy_that_is_cleared_before_the_view_leaves_a_ring_of_one(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    client = three.client(0)
    declare(client, "m1")
    three.apply_definitions()
    three.clear_policy("ha")
    three.settle()
    assert [frame.name for frame in client.frames()] == ["queue.declare-ok"]
    assert three.view("m1") == View(1, "n0", ("n0",), (), ("n0",))


def test_a_leader_that_has_restarted_knows_who_waits_for_a_view(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    declare(three.client(0), "m1")
    three.apply_definitions()
    again = make_bare_engine(node_name="n1")
    again.cluster = Others(three)
    keeper = three.keeper(again, [])
    for record in three.records[1]:
        keeper.apply(record)
    keeper.attach()
    queue = again.vhosts["/"].queues["m1"]
    assert queue.born_mirrored
    # What became of it before the restart is not known: it is not taken for empty.
    assert not queue.awaits_view
    views = QueueViews(again, three._wait_everywhere)
    views.learn()
    assert views.empty_since(queue.number) == 0
    assert keeper.snapshot() == three.keepers[1].snapshot()


def test_an_existing_queue_gets_mirrors_that_have_to_learn(three: Assembly) -> None:
    declared(three, "m1", node=1)
    assert three.view("m1") is None
    three.set_policy("ha", ha_mode="all")
    three.settle()
    assert three.view("m1") == View(1, "n1", ("n1",), ("n0", "n2"), ("n1", "n0", "n2"))
    three.clear_policy("ha")
    three.settle()
    assert three.view("m1") == View(2, "n1", ("n1",), (), ("n1",))


def test_the_home_follows_the_master(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    declared(three, "m1")
    homes = [engine.vhosts["/"].queues["m1"] for engine in three.engines]
    assert {queue.home for queue in homes} == {"n0"}
    three.decree(NodeDown("n0", 1))
    assert {queue.home for queue in homes} == {"n1"}
    assert homes[2].absence is None
    assert [engine.queues_at["n1"] for engine in three.engines] == [1, 1, 1]
    three.decree(NodeDown("n1", 1))
    three.decree(NodeDown("n2", 1))
    assert {queue.home for queue in homes} == {"n2"}
    assert all(queue.absence for queue in homes[:2])
    # One that comes back without having everything changes nothing.
    three.decree(Register("n0", 2, False))
    assert all(queue.absence for queue in homes[:2])
    three.decree(NodeUp("n2", 1))
    assert homes[0].absence is None


@pytest.mark.parametrize("durable", [True, False])
def test_a_transient_queue_lives_as_long_as_a_mirror_in_sync(
    three: Assembly, durable: bool
) -> None:
    three.set_policy("ha", ha_mode="exactly", ha_params=2)
    declared(three, "m1", durable=durable)
    three.decree(NodeDown("n0", 1))
    three.settle()
    view = three.view("m1", 1)
    assert view is not None
    assert (view.master, view.learners) == ("n1", ("n2",))
    three.decree(NodeDown("n1", 1))
    three.settle()
    assert [("m1" in engine.vhosts["/"].queues) for engine in three.engines] == [durable] * 3
    assert len(three.metadata.views()) == durable
    assert three.are_equal()


def test_the_view_of_a_deleted_queue_is_dropped(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="all")
    client = declared(three, "m1")
    client.send(method(1, "queue.delete", 0, "m1"))
    three.settle()
    assert [frame.name for frame in client.frames()] == ["queue.delete-ok"]
    assert three.metadata.views() == {}
    # The same name again is another queue.
    declared(three, "m1")
    assert list(three.metadata.views()) == ["2"]


def test_a_new_leader_finds_what_the_old_one_left_undone(three: Assembly) -> None:
    three.lead(-1)
    declared(three, "m1")
    client = declared(three, "m2")
    three.set_policy("ha", ha_mode="exactly", ha_params=2)
    three.lead(1)
    three.settle()
    assert [sorted(view.wanted) for view in three.metadata.views().values()] == [
        ["n0", "n1"],
        ["n0", "n2"],
    ]
    three.lead(-1)
    client.send(method(1, "queue.delete", 0, "m2"))
    three.settle()
    assert len(three.metadata.views()) == 2
    three.lead(2)
    three.settle()
    assert list(three.metadata.views()) == ["1"]


def test_policies_in_quick_succession_end_as_the_last_one_says(three: Assembly) -> None:
    declared(three, "m1")
    three.set_policy("a", ha_mode="all")
    three.place()
    three.set_policy("b", ha_mode="nodes", ha_params=["n2"])
    three.clear_policy("a")
    three.place()
    three.set_policy("b", ha_mode="exactly", ha_params=2)
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert len(view.wanted) == 2
    three.set_policy("b", ha_mode="nodes", ha_params=["n2", "elsewhere"])
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert (view.master, view.learners) == ("n0", ("n2",))
    three.decree(Expand("1", view.epoch, "n2"))
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert (view.master, view.in_sync, view.wanted) == ("n2", ("n2",), ("n2",))


def test_a_queue_is_declared_where_the_policy_wants_it(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="nodes", ha_params=["n2", "n1"])
    client = three.client(0)
    declare(client, "m1")
    three.settle()
    for request in three.requests:
        request.finish((0, 0))
    three.go_on()
    assert [frame.name for frame in client.frames()] == ["queue.declare-ok"]
    assert three.view("m1") == View(1, "n2", ("n2", "n1"), (), ("n2", "n1"))
    assert type(three.engines[0].vhosts["/"].queues["m1"]) is FarQueue


def test_many_queues_are_placed_evenly(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="exactly", ha_params=2)
    client = three.client(0)
    for number in range(200):
        declare(client, f"m{number}")
    three.settle()
    assert len(client.frames()) == 200
    wanted = [name for view in three.metadata.views().values() for name in view.wanted]
    assert [wanted.count(name) for name in ("n0", "n1", "n2")] == [200, 100, 100]


def test_a_queue_that_is_on_one_node_alone_is_forgotten_with_it(three: Assembly) -> None:
    three.set_policy("ha", ha_mode="exactly", ha_params=1)
    declared(three, "m1", node=2)
    three.decree(NodeDown("n2", 1))
    three.settle()
    assert three.decree(Forget("n2")).name == "DONE"
    three.settle()
    assert not any(engine.vhosts["/"].queues for engine in three.engines)
    assert three.metadata.views() == {}
    assert three.are_equal()


# -- when nobody is left who has everything


def lost(three: Assembly, stopped: bool = False) -> View:
    """The queue m1 has lost its only replica in sync; n1 and n2 are learners."""
    declared(three, "m1")
    three.set_policy("ha", ha_mode="all", **three.extra)
    three.settle()
    three.decree(NodeDown("n0", 1, stopped))
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert (view.master, view.in_sync, view.learners) == (None, ("n0",), ("n1", "n2"))
    return view


PROMOTES = [
    # (on failure, on shutdown, was stopped, promotes)
    (None, None, False, False),
    (None, None, True, False),
    ("always", None, False, True),
    ("always", None, True, False),
    (None, "always", False, False),
    (None, "always", True, True),
    ("when-synced", "always", True, False),
    ("always", "always", True, True),
]


@pytest.mark.parametrize(("on_failure", "on_shutdown", "stopped", "promotes"), PROMOTES)
def test_a_replica_that_lacks_messages_is_promoted_only_by_policy(
    three: Assembly, on_failure: str | None, on_shutdown: str | None, stopped: bool, promotes: bool
) -> None:
    given = {"ha_promote_on_failure": on_failure, "ha_promote_on_shutdown": on_shutdown}
    three.extra = {key: value for key, value in given.items() if value is not None}
    before = lost(three, stopped)
    three.now_ms += PATIENCE_MS
    three.settle()
    view = three.view("m1")
    assert view is not None
    if not promotes:
        assert view == before
        return
    assert (view.master, view.in_sync, view.unclean) == ("n2", ("n2",), view.epoch)
    assert three.engines[0].totals.messages["/"]["promoted_unclean"] == 1
    # Whoever comes back has to learn from it.
    three.decree(Register("n0", 2, False))
    view = three.view("m1")
    assert view is not None
    assert (view.master, view.learners) == ("n2", ("n0", "n1"))


def test_a_replica_that_has_everything_is_waited_for(three: Assembly) -> None:
    three.extra = {"ha_promote_on_failure": "always"}
    lost(three)
    three.now_ms += PATIENCE_MS - 1
    three.settle()
    three.decree(NodeUp("n0", 1))
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert (view.master, view.unclean) == ("n0", 0)
    # The next loss is waited for anew.
    three.decree(NodeDown("n0", 1))
    three.now_ms += 1
    three.settle()
    view = three.view("m1")
    assert view is not None
    assert view.master is None

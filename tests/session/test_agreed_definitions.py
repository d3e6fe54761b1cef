"""Definitions in a cluster: proposed on one node, made on all, answered when they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pair import make_bare_engine, method
from parliament import FarQueue, Others, Parliament

from warren.auth.directory import DirectoryError
from warren.auth.permissions import Permission
from warren.auth.users import User
from warren.engine import agreed
from warren.engine.metadata_format import Kind, encode_delete, encode_put, pack, unpack
from warren.engine.new_vhost import NewVHost
from warren.model.errors import Postponed
from warren.model.policy import Policy, PolicyError
from warren.wire.tables import encode_table

#: So long may a slice of an image of the definitions hold a node up. Judged by `make timing`.
SLICE_S = 0.05


@pytest.fixture
def three() -> Parliament:
    return Parliament()


def test_a_declared_queue_is_on_all_nodes_before_the_answer(three: Parliament) -> None:
    client = three.client(1)
    client.send(method(1, "queue.declare", 0, "q", durable=True))
    assert client.frames() == []
    assert "q" not in three.engines[1].vhosts["/"].queues
    three.settle()
    (answer,) = client.frames()
    assert answer.name == "queue.declare-ok"
    queues = [engine.vhosts["/"].queues["q"] for engine in three.engines]
    assert [type(queue) is FarQueue for queue in queues] == [True, False, True]
    assert {queue.home for queue in queues} == {"n1"}
    assert {queue.number for queue in queues} == {1}
    assert [queue.queue_id for queue in queues] == [0, 1, 0]
    assert three.are_equal()


def test_two_nodes_declare_the_same_name_at_once(three: Parliament) -> None:
    first, second = three.client(0), three.client(2)
    first.send(method(1, "queue.declare", 0, "q", durable=True))
    second.send(method(1, "queue.declare", 0, "q", durable=True))
    three.settle()
    assert [frame.name for frame in first.frames()] == ["queue.declare-ok"]
    # The second meets the queue of the first, and has to ask there for its counts.
    assert three.engines[2].cluster.asked == [("n0", "facts", "/", "q")]  # type: ignore[union-attr]
    three.requests[0].finish((3, 1))
    three.go_on()
    (answer,) = second.frames()
    assert answer.values == ("q", 3, 1)
    assert three.are_equal()


def test_a_declare_that_differs_from_one_on_another_node_is_refused(three: Parliament) -> None:
    first, second = three.client(0), three.client(2)
    first.send(method(1, "queue.declare", 0, "q", durable=True))
    second.send(method(1, "queue.declare", 0, "q", durable=False))
    three.settle()
    (answer,) = second.frames()
    assert answer.name == "channel.close"
    assert answer["reply_code"] == 406


def test_a_generated_name_is_kept_while_the_nodes_agree(three: Parliament) -> None:
    client = three.client(0)
    client.send(method(1, "queue.declare", 0, ""))
    three.settle()
    (answer,) = client.frames()
    (name,) = three.engines[2].vhosts["/"].queues
    assert answer.values[0] == name


def test_exclusive_queues_go_with_their_connection_on_all_nodes(three: Parliament) -> None:
    owner, other = three.client(0), three.client(1)
    owner.send(method(1, "queue.declare", 0, "mine", exclusive=True))
    three.settle()
    assert [frame.name for frame in owner.frames()] == ["queue.declare-ok"]
    (answer,) = other.exchange(method(1, "queue.declare", 0, "mine", exclusive=True))
    assert answer["reply_code"] == 405
    owner.hang_up()
    three.settle()
    assert all("mine" not in engine.vhosts["/"].queues for engine in three.engines)
    assert three.are_equal()


def test_an_owner_that_left_before_the_nodes_agreed(three: Parliament) -> None:
    owner = three.client(0)
    owner.send(method(1, "queue.declare", 0, "mine", exclusive=True))
    owner.hang_up()
    three.settle()
    assert all("mine" not in engine.vhosts["/"].queues for engine in three.engines)


def test_who_declares_a_queue_on_its_way_out_waits_for_it_to_go(three: Parliament) -> None:
    owner, other = three.client(0), three.client(0)
    owner.send(method(1, "queue.declare", 0, "mine", exclusive=True))
    three.settle()
    owner.hang_up()
    other.send(method(1, "queue.declare", 0, "mine", exclusive=True))
    three.settle()
    assert [frame.name for frame in other.frames()] == ["queue.declare-ok"]


def test_deleting_answers_with_the_count_of_messages(three: Parliament) -> None:
    client = three.client(0)
    client.send(method(1, "queue.declare", 0, "q"))
    three.settle()
    client.frames()
    client.send(method(1, "queue.delete", 0, "q"))
    three.settle()
    (answer,) = client.frames()
    assert answer.name == "queue.delete-ok"
    assert all(not engine.vhosts["/"].queues for engine in three.engines)


def test_an_auto_delete_exchange_goes_on_all_nodes_in_the_same_entry(three: Parliament) -> None:
    client = three.client(0)
    for name, values in (
        ("exchange.declare", (0, "e", "fanout", False, False, True)),
        ("queue.declare", (0, "q")),
        ("queue.bind", (0, "q", "e", "k")),
        ("queue.unbind", (0, "q", "e", "k")),
    ):
        client.send(method(1, name, *values))
        three.settle()
    assert [frame.name.removesuffix("-ok") for frame in client.frames()] == [
        "exchange.declare",
        "queue.declare",
        "queue.bind",
        "queue.unbind",
    ]
    assert all("e" not in engine.vhosts["/"].exchanges for engine in three.engines)
    assert three.index == 3 + 4
    assert three.are_equal()


def test_a_binding_to_what_is_gone_by_then_has_no_effect(three: Parliament) -> None:
    first, second = three.client(0), three.client(1)
    first.send(method(1, "queue.declare", 0, "q"))
    three.settle()
    first.frames()
    first.send(method(1, "queue.delete", 0, "q"))
    second.send(method(1, "queue.bind", 0, "q", "amq.direct", "k"))
    three.settle()
    (answer,) = second.frames()
    assert answer["reply_code"] == 404
    assert three.are_equal()


def test_queues_that_do_not_outlive_their_node_go_with_it(three: Parliament) -> None:
    client = three.client(0)
    for name, durable in (("keeps", True), ("goes", False)):
        client.send(method(1, "queue.declare", 0, name, durable=durable))
        three.settle()
    three.index += 1
    for keeper in three.keepers:
        keeper.forget_transient(three.index, "n0")
    assert [sorted(e.vhosts["/"].queues) for e in three.engines] == [["keeps"]] * 3
    assert three.are_equal()


def test_a_restarted_node_goes_on_from_the_entry_its_log_knows(three: Parliament) -> None:
    client = three.client(0)
    for name in ("a", "b", ""):
        client.send(method(1, "queue.declare", 0, name, durable=bool(name)))
        three.settle()
    again = make_bare_engine(node_name="n1")
    again.cluster = Others(three)
    keeper = three.keeper(again, [])
    for record in three.records[1]:
        keeper.apply(record)
    keeper.attach()
    assert keeper.applied == three.index
    assert keeper.snapshot() == three.keepers[1].snapshot()
    assert [queue.number for queue in again.vhosts["/"].queues.values()] == [1, 2, 3]


def test_an_image_makes_any_node_equal(three: Parliament) -> None:
    behind = make_bare_engine(node_name="n1")
    behind.cluster = Others(three)
    keeper = three.keeper(behind, [])
    keeper.attach()
    client = three.client(0)
    for name, values in (
        ("queue.declare", (0, "a")),
        ("exchange.declare", (0, "e", "topic")),
        ("queue.bind", (0, "a", "e", "x.#")),
        ("queue.declare", (0, "b", False, True)),
    ):
        client.send(method(1, name, *values))
        three.settle()
    keeper.take_over(three.index, three.keepers[0].snapshot())
    assert keeper.snapshot() == three.keepers[0].snapshot()
    # The same name, but another queue by now; and a user less.
    client.send(method(1, "queue.delete", 0, "b"))
    three.settle()
    client.send(method(1, "queue.declare", 0, "b", False, True))
    three.settle()
    three.do(lambda engine: engine.directory.delete_user("guest"))
    breaths: list[int] = []
    image = three.keepers[0].snapshot()
    keeper.take_over(three.index, image, lambda: breaths.append(len(breaths)))
    assert len(breaths) > 2
    assert keeper.snapshot() == three.keepers[0].snapshot()
    assert behind.vhosts["/"].queues["b"].number == 3
    assert not behind.directory.has_user("guest")


def image_of(bindings: int) -> bytes:
    """Ten queues of another node, and so many bindings to them."""
    none = encode_table({})
    exchange = {"type": "direct", "auto_delete": False, "internal": False, "arguments": none}
    queue = {"auto_delete": False, "arguments": none, "home": "n0"}
    puts = [
        encode_put(Kind.VHOST, ("/",), {"description": "", "tags": []}),
        encode_put(Kind.EXCHANGE, ("/", "e"), exchange),
        *(encode_put(Kind.QUEUE, ("/", f"q{n}"), {"id": n + 1, **queue}) for n in range(10)),
    ]
    for number in range(bindings):
        key = ("/", "e", "queue", f"q{number % 10}", b"key-%d" % number, none)
        puts.append(encode_put(Kind.BINDING, key, {}))
    return pack(puts, last_queue_id=10, applied=7)


def test_an_image_comes_in_slices_and_is_kept_whole(three: Parliament) -> None:
    """Between two slices the loop goes on; what is on the disk never says half of it."""
    records: list[bytes] = []
    behind = make_bare_engine(node_name="n1")
    behind.cluster = Others(three)
    keeper = three.keeper(behind, records)
    keeper.attach()
    seen: list[bool] = []
    image = image_of(3_000)
    steps = keeper.taking_over(7, image)
    for _ in steps:
        under_way = keeper.under_way
        assert under_way is not None
        if not seen:
            under_way.when_done(lambda: seen.append(True))
            seen.append(False)
        assert not keeper.is_whole
        assert keeper.applied == 0
        assert not records
        assert not behind.restoring
    assert seen == [False, True]
    assert keeper.is_whole
    assert keeper.applied == 7
    assert len(records) == 1
    assert keeper.snapshot() == image
    head, changes = unpack(records[0])
    assert head.number("applied") == 7
    assert len(changes) == 3_000 + 12


def test_no_slice_of_a_large_image_holds_the_loop(
    three: Parliament, judge_time: Callable[[float, float], None]
) -> None:
    behind = make_bare_engine(node_name="n1")
    behind.cluster = Others(three)
    keeper = three.keeper(behind, [])
    keeper.attach()
    image = image_of(100_000)
    slowest_s, began_s = 0.0, time.perf_counter()
    for _ in keeper.taking_over(7, image):
        slowest_s = max(slowest_s, time.perf_counter() - began_s)
        began_s = time.perf_counter()
    slowest_s = max(slowest_s, time.perf_counter() - began_s)
    judge_time(slowest_s, SLICE_S)


def test_homes_are_chosen_by_the_locator(three: Parliament) -> None:
    client = three.client(0)
    for name, locator in (("a", "client-local"), ("b", "min-masters"), ("c", "random")):
        arguments = {"x-queue-master-locator": locator}
        client.send(method(1, "queue.declare", 0, name, durable=True, arguments=arguments))
        three.settle()
        for request in three.requests:
            request.finish((0, 0))
        three.go_on()
    assert [frame.name for frame in client.frames()] == ["queue.declare-ok"] * 3
    assert [q.home for q in three.engines[2].vhosts["/"].queues.values()] == ["n0", "n1", "n2"]


def test_a_queue_whose_home_is_down_is_not_found_with_the_reason(three: Parliament) -> None:
    owner, client = three.client(0), three.client(1)
    owner.send(method(1, "queue.declare", 0, "q", durable=True))
    three.settle()
    queue = three.engines[1].vhosts["/"].queues["q"]
    queue.absence = "home node 'n0' of durable queue 'q' in vhost '/' is down or inaccessible"
    (answer,) = client.exchange(method(1, "queue.declare", 0, "q", durable=True))
    assert answer["reply_code"] == 404
    assert "home node 'n0'" in answer["reply_text"]


def test_parameters_are_agreed_on_and_go_with_their_vhost(three: Parliament) -> None:
    three.do(lambda engine: engine.add_vhost("v"))
    three.do(lambda engine: engine.set_parameter("v", "shovel", "s", {"uri": ["a", None]}), node=1)
    three.do(lambda engine: engine.set_global_parameter("v", 1.5), node=2)
    three.do(lambda engine: engine.set_global_parameter("cluster_name", "ours"))
    assert [e.parameters for e in three.engines] == [
        {("v", "shovel", "s"): {"uri": ["a", None]}}
    ] * 3
    assert [engine.cluster_name for engine in three.engines] == ["ours"] * 3
    index = three.index
    three.do(lambda engine: engine.set_global_parameter("cluster_name", "ours"))
    # It is agreed on again: nobody can know that it has not been replaced meanwhile.
    assert three.index == index + 1
    three.do(lambda engine: engine.delete_vhost("v"))
    assert not any(engine.parameters for engine in three.engines)
    # Its name is that of the virtual host, but it is the cluster's.
    assert [engine.global_parameters["v"] for engine in three.engines] == [1.5] * 3
    three.do(lambda engine: engine.clear_global_parameter("cluster_name"))
    assert [e.cluster_name for e in three.engines] == [
        e.settings.cluster_name for e in three.engines
    ]
    assert three.are_equal()


def test_a_vhost_is_never_without_its_defaults(three: Parliament) -> None:
    first = three.engines[0]

    def defaults(name: str) -> NewVHost:
        return NewVHost(
            name,
            {"max-queues": 3},
            [Policy(name, "cap", ".*", {"max-length": 9}, apply_to="queues")],
            [User("anna", "", "rabbit_password_hashing_sha256", ("monitoring",))],
            [Permission("anna", name, ".*", "", "")],
        )

    first.vhost_defaults = defaults
    with pytest.raises(Postponed):
        first.add_vhost("v")
    # One proposal, so there is no moment and no entry between the parts.
    assert len(three.pending) == 1
    assert "v" not in first.vhosts
    three.settle()
    for engine in three.engines:
        assert engine.directory.vhost_limits("v") == {"max-queues": 3}
        assert engine.vhosts["v"].operator_policies["cap"].definition == {"max-length": 9}
        assert engine.directory.user("anna").tags == ("monitoring",)
        assert engine.directory.permission("anna", "v") is not None
    assert three.are_equal()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"limits": {"max-cows": 1}}, DirectoryError),
        ({"permissions": [Permission("guest", "v", "(", "", "")]}, DirectoryError),
        ({"operator_policies": [Policy("v", "p", "(", {"max-length": 1})]}, PolicyError),
    ],
)
def test_defaults_that_cannot_be_used_are_refused_before_anybody_hears_of_them(
    three: Parliament, wrong: dict[str, Any], error: type[Exception]
) -> None:
    three.engines[0].vhost_defaults = lambda name: NewVHost(name, **wrong)
    with pytest.raises(error):
        three.engines[0].add_vhost("v")
    assert three.pending == []


def put_queue(name: str) -> bytes:
    value = {"auto_delete": False, "arguments": b"", "home": "n1"}
    return pack((encode_put(Kind.QUEUE, ("/", name), value),))


def test_entries_that_only_add_share_a_record_and_deletions_have_their_own(
    three: Parliament,
) -> None:
    delete = pack((encode_delete(Kind.QUEUE, ("/", "b")),))
    commands = [put_queue("a"), put_queue("b"), delete, put_queue("c"), put_queue("d")]
    entries = list(enumerate(commands, start=three.index + 1))
    together, apart = three.keepers[1], three.keepers[2]
    written = three.records[1]
    written.clear()
    together.apply_agreed(entries)
    for entry in entries:
        apart.apply_agreed([entry])
    assert together.snapshot() == apart.snapshot()
    assert sorted(three.engines[1].vhosts["/"].queues) == ["a", "c", "d"]
    read = [unpack(record) for record in written]
    assert [len(changes) for _, changes in read] == [2, 1, 2]
    assert [head.number("applied") - three.index for head, _ in read] == [2, 3, 5]
    # All of it again, as after a restart that had not noted the last ones: nothing more happens.
    together.apply_agreed(entries)
    assert together.snapshot() == apart.snapshot()
    assert len(written) == 3


def test_a_record_of_many_entries_ends_somewhere(
    three: Parliament, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = [put_queue(f"q{number}") for number in range(7)]
    monkeypatch.setattr(agreed, "RECORD_BYTES", 3 * len(commands[0]))
    three.records[0].clear()
    three.keepers[0].apply_agreed(list(enumerate(commands, start=three.index + 1)))
    assert [len(unpack(record)[1]) for record in three.records[0]] == [3, 3, 1]


def test_whoever_waits_for_an_entry_that_changed_no_definition_goes_on(three: Parliament) -> None:
    keeper, done = three.keepers[0], []
    keeper.when_applied(three.index, lambda: done.append("known"))
    keeper.when_applied(three.index + 2, lambda: done.append("first"))
    keeper.when_applied(three.index + 1, lambda: done.append("second"))
    keeper.reach(three.index + 1)
    three.go_on()
    assert done == ["known"]  # None overtakes another.
    keeper.reach(three.index + 2)
    three.go_on()
    assert done == ["known", "first", "second"]


def test_what_an_operator_says_again_replaces_what_another_has_said_meanwhile(
    three: Parliament,
) -> None:
    """The node that is told has it still, and does not know yet that it was replaced."""

    def policy(length: int) -> Policy:
        return Policy("/", "p", ".*", {"max-length": length})

    three.do(lambda engine: engine.set_policy(policy(1)))
    for node, length in ((0, 2), (1, 1)):
        with pytest.raises(Postponed):
            three.engines[node].set_policy(policy(length))
    three.settle()
    for engine in three.engines:
        assert engine.vhosts["/"].policies["p"].definition == {"max-length": 1}
    assert three.are_equal()


def test_a_row_of_an_import_that_is_so_already_is_no_change(three: Parliament) -> None:
    row = Policy("/", "p", ".*", {"max-length": 1})
    three.do(lambda engine: engine.set_policy(row))
    with three.engines[1].metadata.sparing():
        three.engines[1].set_policy(row)
    assert not three.pending

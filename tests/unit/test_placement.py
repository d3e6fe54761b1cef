"""Where mirrors are to be: the policy's wish, what is there, and who lives."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster.metadata import Metadata, Node, View
from warren.cluster.metadata_commands import (
    Answer,
    CreateView,
    Drain,
    Expand,
    NodeDown,
    NodeUp,
    Place,
    Register,
    Shrink,
    decode_command,
    encode_command,
)
from warren.cluster.placement import (
    REPLICAS_MAX,
    Loads,
    Subject,
    Wish,
    decide,
    wanted_replicas,
)

ALL = Wish("all")


def table(alive: str, dead: str = "") -> dict[str, Node]:
    nodes = {name: Node(1, True) for name in alive}
    return nodes | {name: Node(1, False) for name in dead}


def view(master: str | None, in_sync: str, learners: str = "", wanted: str = "") -> View:
    return View(3, master, tuple(in_sync), tuple(learners), tuple(wanted or in_sync + learners))


def exactly(count: int) -> Wish:
    return Wish("exactly", count=count)


def on(names: str) -> Wish:
    return Wish("nodes", names=tuple(names))


WANTED = [
    # (wish, view, alive, dead, replicas)
    (ALL, None, "abc", "", "abc"),
    (ALL, None, "bac", "d", "abcd"),
    (ALL, view("b", "bc"), "abc", "", "bca"),
    (ALL, view(None, "b", "", "bc"), "c", "b", "bc"),
    (Wish(), view("b", "bc", "a"), "abc", "", "b"),
    (Wish(), view(None, "b", "a"), "a", "b", "ba"),
    (exactly(1), None, "abc", "", "a"),
    (exactly(2), None, "abc", "", "ab"),
    (exactly(4), None, "abc", "", "abc"),
    # The present ones stay, the oldest of them when there are too many.
    (exactly(2), view("b", "bca"), "abc", "", "bc"),
    (exactly(2), view("b", "cba"), "abc", "", "bc"),
    (exactly(3), view("c", "c", "a"), "abc", "", "cab"),
    # Who is lost is replaced, while there is somebody.
    (exactly(2), view("a", "a", "", "ab"), "acd", "b", "ac"),
    (exactly(2), view("a", "a", "", "ab"), "a", "b", "ab"),
    (exactly(3), view("a", "a", "", "abd"), "ac", "bd", "acb"),
    # Nobody has everything, so nobody can give it to others.
    (exactly(2), view(None, "a", "c", "ac"), "bc", "a", "ac"),
    (on("bc"), None, "abc", "", "abc"),
    (on("bc"), view("a", "a"), "abc", "", "bc"),
    (on("bx"), view("a", "a"), "abc", "", "b"),
    (on("bc"), view("a", "a"), "a", "bc", "bc"),
    # Nothing of the list is known: the master stays, alone.
    (on("xy"), None, "abc", "", "a"),
    (on("xy"), view("b", "bc"), "abc", "", "b"),
]


LINKED = [
    # (wish, view, replicas), with an operator's wish for d, on the living a, b, c, d
    (Wish(), None, "ad"),
    (Wish(), view("a", "ad"), "ad"),
    # The master is where the operator wants a mirror: what there was before it stays.
    (Wish(), view("d", "da"), "ad"),
    (Wish(), view("d", "d", "", "ad"), "ad"),
    (Wish(), view("d", "d"), "d"),
    (ALL, view("a", "a"), "abcd"),
    (exactly(2), view("a", "abd"), "abd"),
    (exactly(2), view("d", "dab"), "abd"),
    (exactly(2), view("d", "d"), "abd"),
    (on("bc"), view("a", "a"), "bcd"),
    (on("bd"), view("a", "a"), "bd"),
    (on("xy"), view("b", "bc"), "bd"),
    # The policy has gone: the master stays, and the operator's wish.
    (Wish(), view("b", "bcad"), "bd"),
    (Wish(), view(None, "b", "a"), "bad"),
]


@pytest.mark.parametrize(("wish", "now", "replicas"), LINKED)
def test_what_an_operator_wants_comes_on_top_of_the_policy(
    wish: Wish, now: View | None, replicas: str
) -> None:
    linked = dataclasses.replace(wish, links=("d", "unknown"))
    found = wanted_replicas(linked, now, "a", table("abcd"), Loads(()))
    assert "".join(found) == replicas
    after = view(found[0], "".join(found))
    again = wanted_replicas(linked, after, "a", table("abcd"), Loads(()))
    if now is None or now.master is not None:
        assert set(again) == set(found)


def test_a_wish_for_nodes_that_are_unknown_leaves_the_master() -> None:
    wish = Wish(links=("x",))
    assert wanted_replicas(wish, view("a", "a"), "a", table("a"), Loads(())) == ("a",)
    assert decide(subject(wish), None, table("ab"), Loads(())) == CreateView(
        "7", ("a",), False, None
    )


DRAINED = [
    # (wish, view, replicas) where c of the living a, b, c, d is drained
    (ALL, None, "abd"),
    (ALL, view("a", "ac"), "acbd"),
    (exactly(3), None, "abd"),
    (exactly(4), None, "abd"),
    # What a drained node has it keeps.
    (exactly(2), view("a", "ac"), "ac"),
    (on("bc"), view("a", "a"), "b"),
    (on("bc"), view("b", "bc"), "bc"),
    (on("c"), view("b", "b"), "b"),
    (Wish(links=("c",)), view("a", "a"), "a"),
    (Wish(links=("c",)), view("a", "ac"), "ac"),
]


@pytest.mark.parametrize(("wish", "now", "replicas"), DRAINED)
def test_a_drained_node_gets_no_new_replicas(wish: Wish, now: View | None, replicas: str) -> None:
    nodes = table("abcd") | {"c": Node(1, True, drained=True)}
    assert "".join(wanted_replicas(wish, now, "a", nodes, Loads(()))) == replicas


def test_a_drained_node_becomes_master_only_if_there_is_no_other() -> None:
    machine = Metadata()
    for name in "abc":
        machine.carry_out(1, Register(name, 1, False))
    assert machine.carry_out(2, CreateView("7", ("a", "b", "c"))).answer is Answer.DONE
    assert machine.carry_out(3, Drain("b", True)).answer is Answer.DONE
    assert machine.carry_out(3, Drain("x", True)).answer is Answer.NOT_FOUND
    machine.carry_out(4, NodeDown("a", 1))
    assert machine.views()["7"].master == "c"
    machine.carry_out(5, NodeDown("c", 1))
    assert machine.views()["7"].master == "b"
    # It stays so in its next life, and in an image, until an operator says otherwise.
    machine.carry_out(6, NodeDown("b", 1))
    machine.carry_out(7, Register("b", 2, False))
    copy = Metadata()
    copy.restore(machine.image())
    assert copy.nodes()["b"] == Node(2, True, drained=True)
    copy.carry_out(8, Drain("b", False))
    assert copy.nodes()["b"] == Node(2, True)


def test_a_command_has_the_first_version_that_knows_it() -> None:
    assert encode_command(Register("a", 1, False))[0] == 1
    assert encode_command(Drain("a", True))[0] == 2
    assert decode_command(encode_command(Drain("a", True))) == Drain("a", True)


@pytest.mark.parametrize(("wish", "now", "alive", "dead", "replicas"), WANTED)
def test_wanted_replicas(
    wish: Wish, now: View | None, alive: str, dead: str, replicas: str
) -> None:
    found = wanted_replicas(wish, now, "a", table(alive, dead), Loads(()))
    assert "".join(found) == replicas


def test_new_replicas_go_where_the_fewest_are() -> None:
    there = [view("a", "ab"), view("a", "ab"), view("c", "cd")]
    loads = Loads(there)
    nodes = table("abcd")
    assert wanted_replicas(exactly(2), None, "a", nodes, loads) == ("a", "c")
    loads.moved(None, ("a", "c"))
    assert wanted_replicas(exactly(2), None, "a", nodes, loads) == ("a", "d")
    loads.moved(there[2], ("a", "b"))
    assert [loads.of(name) for name in "abcd"] == [4, 3, 1, 0]


def test_no_policy_wants_more_than_a_view_can_have() -> None:
    nodes = {f"n{number:03}": Node(1, True) for number in range(100)}
    for wish in (ALL, exactly(100), Wish("nodes", names=tuple(nodes))):
        found = wanted_replicas(wish, None, "n099", nodes, Loads(()))
        assert len(found) == REPLICAS_MAX
        assert found[0] == "n099"


def subject(wish: Wish, born: bool = False, empty_since: int = 0) -> Subject:
    return Subject("7", "a", wish, born, empty_since)


def test_a_queue_without_a_mirroring_policy_has_no_view() -> None:
    assert decide(subject(Wish()), None, table("abc"), Loads(())) is None


def test_a_queue_that_waits_for_a_view_gets_one_even_without_its_policy() -> None:
    decision = decide(subject(Wish(), True, 4), None, table("abc"), Loads(()))
    assert decision == CreateView("7", ("a",), True, 4)


def test_a_queue_that_may_hold_something_is_not_called_empty() -> None:
    decision = decide(subject(ALL), None, table("abc"), Loads(()))
    assert decision == CreateView("7", ("a", "b", "c"), False, None)


def test_nothing_is_done_while_the_home_is_down() -> None:
    assert decide(subject(ALL, True, 1), None, table("bc", "a"), Loads(())) is None
    assert decide(subject(ALL, True, 1), None, table("bc"), Loads(())) is None


def test_the_order_of_replicas_is_no_reason_to_change_them() -> None:
    assert decide(subject(on("cba")), view("a", "abc"), table("abc"), Loads(())) is None
    decision = decide(subject(on("cb")), view("a", "abc"), table("abc"), Loads(()))
    assert decision == Place("7", 3, ("c", "b"))


NAMES = "abcde"
wishes = st.one_of(
    st.just(Wish()),
    st.just(ALL),
    st.integers(1, 6).map(exactly),
    st.lists(st.sampled_from(NAMES + "x"), min_size=1, max_size=3, unique=True).map(
        lambda names: Wish("nodes", names=tuple(names))
    ),
)
happenings = st.one_of(
    st.tuples(st.just("wish"), wishes),
    st.tuples(st.sampled_from(["down", "up", "expand", "shrink"]), st.sampled_from(NAMES)),
)


class World:
    """The real state machine, and a leader that proposes what `decide` says."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.index = 0
        self.wish: Wish = ALL
        for name in NAMES:
            self.apply(Register(name, 1, False))

    def apply(self, command: object) -> Answer:
        self.index += 1
        return self.metadata.carry_out(self.index, command).answer  # type: ignore[arg-type]

    def happen(self, what: str, who: object) -> None:
        now = self.metadata.view("7")
        if what == "wish":
            assert isinstance(who, Wish)
            self.wish = who
        elif what in {"down", "up"}:
            self.apply(NodeDown(str(who), 1) if what == "down" else NodeUp(str(who), 1))
        elif now is not None:
            kind = Expand if what == "expand" else Shrink
            self.apply(kind("7", now.epoch, str(who)))

    def settle(self) -> None:
        """As often as something differs; that must come to an end."""
        for _ in range(3):
            nodes, views = self.metadata.nodes(), self.metadata.views()
            loads = Loads(views.values())
            decision = decide(subject(self.wish, True), views.get("7"), nodes, loads)
            if decision is None:
                return
            assert self.apply(decision) is Answer.DONE, decision
        raise AssertionError(f"{self.wish} is never satisfied: {views}")


@given(st.lists(happenings, max_size=25))
def test_whatever_happens_the_last_wish_is_settled_on(script: list[tuple[str, object]]) -> None:
    world = World()
    for what, who in script:
        world.happen(what, who)
        had = world.metadata.view("7")
        world.settle()
        now, nodes = world.metadata.view("7"), world.metadata.nodes()
        if now is None:
            assert not nodes["a"].is_alive
            continue
        # Placing never makes anybody lose what it has: who has everything stays until a
        # wanted one has it too.
        if had is not None and had.master is not None:
            assert now.master is not None
            assert set(now.in_sync) <= set(had.in_sync)
        living = [name for name in NAMES if nodes[name].is_alive]
        if world.wish.mode == "all":
            assert set(now.wanted) == set(NAMES)
        elif world.wish.mode == "exactly" and now.master is not None:
            count = min(world.wish.count, len(living))
            assert len([name for name in now.wanted if name in living]) == count
            assert len(now.wanted) <= world.wish.count
            assert now.master in now.wanted
        elif world.wish.mode == "nodes" and set(world.wish.names) & set(NAMES):
            assert set(now.wanted) == set(world.wish.names) & set(NAMES)
        elif now.master is not None:
            assert now.wanted == (now.master,)
            assert now.in_sync == (now.master,)

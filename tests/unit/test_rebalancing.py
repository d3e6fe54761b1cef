"""Plans of which masters are to move."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.management.rebalancing import STRATEGIES, MirroredQueue, Move, plan

NODES = ("a", "b", "c")


def queue(name: str, master: str, messages: int = 0, heirs: Sequence[str] = NODES) -> MirroredQueue:
    return MirroredQueue("/", name, master, tuple(it for it in heirs if it != master), messages)


def planned(strategy: str, queues: Sequence[MirroredQueue], **connections: int) -> list[Move]:
    return plan(strategy, queues, connections or dict.fromkeys(NODES, 0), random.Random(1))


def after(queues: Sequence[MirroredQueue], moves: Sequence[Move]) -> dict[str, str]:
    masters = {it.name: it.master for it in queues}
    return masters | {move.name: move.target for move in moves}


def test_the_shortest_queues_move_and_nobody_keeps_more_than_a_share() -> None:
    """List B, 12."""
    queues = [queue(f"q{i}", "a", messages=10 if i in {1, 3} else 0) for i in range(5)]
    masters = after(queues, planned("min-masters", queues))
    assert sorted(Counter(masters.values()).values()) == [1, 2, 2]
    assert masters["q1"] == masters["q3"] == "a"


def test_nobody_moves_where_all_have_their_share() -> None:
    queues = [queue("x", "a"), queue("y", "b"), queue("z", "c")]
    for strategy in ("min-masters", "min-messages", "min-connections", "round-robin"):
        assert planned(strategy, queues) == [], strategy


def test_masters_of_nodes_that_take_no_part_leave_them() -> None:
    queues = [queue(f"q{i}", "a", messages=i) for i in range(4)]
    for strategy in STRATEGIES:
        moves = planned(strategy, queues, b=0, c=0)
        assert {move.name for move in moves} == {"q0", "q1", "q2", "q3"}, strategy
        assert {move.target for move in moves} <= {"b", "c"}, strategy


def test_messages_are_shared() -> None:
    queues = [queue("big", "a", 100), queue("other", "a", 90), queue("small", "a", 5)]
    masters = after(queues, planned("min-messages", queues))
    assert len({masters["big"], masters["other"]}) == 2
    assert len(set(masters.values())) == 3


def test_nodes_with_many_clients_get_fewer_masters() -> None:
    queues = [queue(f"q{i}", "a") for i in range(6)]
    masters = after(queues, planned("min-connections", queues, a=100, b=100, c=0))
    assert set(masters.values()) == {"c"}


def test_in_turn_by_name() -> None:
    queues = [queue(f"q{i}", "a") for i in range(6)]
    masters = after(queues, planned("round-robin", queues))
    assert [masters[f"q{i}"] for i in range(6)] == ["a", "b", "c", "a", "b", "c"]


@given(
    st.sampled_from(STRATEGIES),
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sets(st.sampled_from("abcd")), st.integers(0, 9)),
        max_size=12,
    ),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9)),
)
def test_masters_move_once_and_onto_heirs_that_take_part(
    strategy: str, rows: list[tuple[str, set[str], int]], connections: dict[str, int]
) -> None:
    queues = [queue(f"q{i}", at, n, sorted(heirs)) for i, (at, heirs, n) in enumerate(rows)]
    by_name = {it.name: it for it in queues}
    moves = plan(strategy, queues, connections, random.Random(1))
    assert len({move.name for move in moves}) == len(moves)
    for move in moves:
        assert move.source == by_name[move.name].master
        assert move.target in by_name[move.name].heirs
        assert move.target in connections
    if strategy == "min-masters" and set("abcd") <= set(connections):
        before, behind = Counter(it.master for it in queues), Counter(after(queues, moves).values())
        assert max(behind.values(), default=0) <= max(before.values(), default=0)


def test_a_strategy_that_is_none() -> None:
    with pytest.raises(KeyError):
        planned("most-masters", [])

"""The modulus-hash exchange, and masters spread evenly."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.management.rebalancing import MirroredQueue, plan
from warren.routing.modulus_hash import ModulusHashMatcher


def test_every_key_goes_to_one_and_all_get_their_share() -> None:
    matcher = ModulusHashMatcher()
    assert matcher.match(b"key", None) == []
    names = [f"shard {n}" for n in range(4)]
    for name in reversed(names):
        matcher.bind(b"whatever", {}, name)
    found = Counter(matcher.match(b"%d" % n, None)[0] for n in range(4000))
    assert sorted(found) == names
    assert min(found.values()) > 800
    assert all(len(matcher.match(b"%d" % n, None)) == 1 for n in range(10))
    again = ModulusHashMatcher()
    for name in names:
        again.bind(b"", {}, name)
    # The order of bindings means nothing, or nodes would not agree.
    assert [matcher.match(b"%d" % n, None) for n in range(50)] == [
        again.match(b"%d" % n, None) for n in range(50)
    ]


def test_a_destination_with_two_bindings_counts_once() -> None:
    matcher = ModulusHashMatcher()
    matcher.bind(b"a", {}, "one")
    matcher.bind(b"b", {}, "one")
    matcher.unbind(b"a", {}, "one")
    assert matcher.match(b"x", None) == ["one"]
    matcher.unbind(b"b", {}, "one")
    assert matcher.is_empty
    with pytest.raises(KeyError):
        matcher.unbind(b"b", {}, "one")


def queue(name: str, master: str, heirs: str) -> MirroredQueue:
    return MirroredQueue("/", name, master, tuple(heirs))


def masters_after(queues: list[MirroredQueue], nodes: str) -> Counter[str]:
    moves = plan("even", queues, dict.fromkeys(nodes, 0), random.Random(1))
    after = {it.name: it.master for it in queues}
    for move in moves:
        it = next(one for one in queues if one.name == move.name)
        assert move.source == it.master
        assert move.target in it.heirs
        after[move.name] = move.target
    assert len({move.name for move in moves}) == len(moves)
    return Counter(after.values())


def test_no_two_nodes_differ_by_more_than_one() -> None:
    queues = [queue(f"q{n}", "ab"[n % 2], "abc".replace("ab"[n % 2], "")) for n in range(4)]
    assert sorted(masters_after(queues, "abc").values()) == [1, 1, 2]


def test_others_make_room_where_there_is_no_direct_way() -> None:
    queues = [queue(f"a{n}", "a", "b") for n in range(3)]
    queues += [queue(f"b{n}", "b", "c") for n in range(2)]
    queues += [queue("c0", "c", "a")]
    assert masters_after(queues, "abc") == {"a": 2, "b": 2, "c": 2}


def test_a_node_that_takes_no_part_has_nothing_afterwards() -> None:
    queues = [queue(f"q{n}", "d", "abc") for n in range(3)] + [queue("stays", "d", "")]
    assert masters_after(queues, "abc") == {"a": 1, "b": 1, "c": 1, "d": 1}


NODE = st.sampled_from("abcd")


@given(st.lists(st.tuples(NODE, st.sets(NODE)), max_size=12))
def test_only_onto_heirs_and_never_worse(drawn: list[tuple[str, set[str]]]) -> None:
    queues = [
        queue(f"q{n}", master, "".join(sorted(heirs - {master})))
        for n, (master, heirs) in enumerate(drawn)
    ]
    before = Counter(dict.fromkeys("abcd", 0))
    before.update(it.master for it in queues)
    after = Counter(dict.fromkeys("abcd", 0))
    after.update(masters_after(queues, "abcd"))
    assert max(after.values()) - min(after.values()) <= max(before.values()) - min(before.values())
    everywhere = [it for it in queues if len(it.heirs) == 3]
    if len(everywhere) == len(queues) and queues:
        assert max(after.values()) - min(after.values()) <= 1

"""How often the memory watch looks."""

from warren.node.memory import INTERVAL_S, SHORTEST_INTERVAL_S, next_look_s

MIB = 1 << 20


def test_far_from_the_mark_it_looks_seldom() -> None:
    assert next_look_s(100 * MIB, 10_000 * MIB) == INTERVAL_S


def test_near_the_mark_it_looks_often() -> None:
    assert next_look_s(1000 * MIB, 1064 * MIB) == 0.0625
    assert next_look_s(1000 * MIB, 1000 * MIB) == SHORTEST_INTERVAL_S


def test_beyond_the_mark_publishers_stand_still() -> None:
    assert next_look_s(1001 * MIB, 1000 * MIB) == INTERVAL_S

"""The table of deliveries that are out, against a dictionary."""

from __future__ import annotations

import random

import pytest

from warren.gateway.numbered import Numbered
from warren.gateway.slot_map import SlotMap


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_dictionary(seed: int) -> None:
    dice = random.Random(seed)
    keys = [dice.choice((n, (n & 255) << 56 | n, 2**64 - 1 - n, n * 2**32)) for n in range(1, 9000)]
    table = SlotMap()
    model: dict[int, int] = {}
    for _ in range(40_000):
        key = keys[dice.randrange(1 + int(len(keys) * dice.random()))]
        if dice.random() < 0.5:
            model[key] = dice.randint(1, 2**64 - 1)
            table.insert(key, model[key])
        else:
            assert table.remove(key) == model.pop(key, 0)
    assert table.keys() == sorted(model)
    for key in list(model):
        assert table.remove(key) == model.pop(key)
    assert len(table) == 0


def test_numbers_are_not_used_again_at_once() -> None:
    table = Numbered()
    first = table.next_number()
    second = table.next_number()
    assert first != second
    table.give_up(first)
    assert table.next_number() not in (first, second)
    assert table.give_up(first) is None

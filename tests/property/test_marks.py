"""Marks against a model that keeps a time for every number."""

from __future__ import annotations

import random

import hypothesis.strategies as st
from hypothesis import given, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from warren.queue.marks import UNKNOWN_MS, Marks, from_stamp, to_stamp

MOST, MANY = 32, 256
TIMES = st.one_of(st.just(UNKNOWN_MS), st.integers(-(10**12), 10**12))


class MarksMachine(RuleBasedStateMachine):
    """While there is room, every number has the time that was said of it last."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = Marks(MOST)
        self.times: list[int] = []

    def may_grow(self) -> bool:
        return self.marks.count < MOST

    @rule(many=st.integers(1, 5), at_ms=TIMES)
    def come(self, many: int, at_ms: int) -> None:
        if self.may_grow():
            self.marks.note(len(self.times), at_ms)
            self.times += [at_ms] * many

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        end = data.draw(st.integers(0, len(self.times)))
        self.marks.forget_from(end)
        del self.times[end:]

    @rule(data=st.data(), at_ms=TIMES)
    def insert(self, data: st.DataObject, at_ms: int) -> None:
        """What is between it and the next mark came no sooner."""
        if not self.times or not self.may_grow():
            return
        first = data.draw(st.integers(0, len(self.times) - 1))
        behind = [number for number, _ in self.marks.rows() if number > first]
        self.marks.insert(first, at_ms)
        if self.times[first] != at_ms:
            end = min(behind, default=len(self.times))
            self.times[first:end] = [at_ms] * (end - first)

    @rule(offset_ms=st.integers(-(10**13), 10**13))
    def keep(self, offset_ms: int) -> None:
        if any(at_ms == -offset_ms for at_ms in self.times):
            return  # 0 is what stands for an unknown time.
        kept = self.marks.encode(offset_ms)
        self.marks = Marks(MOST)
        self.marks.load(kept, offset_ms)

    @invariant()
    def tells_all(self) -> None:
        for number, at_ms in enumerate(self.times):
            assert self.marks.at(number) == at_ms
        rows = self.marks.rows()
        assert [first for first, _ in rows] == sorted({first for first, _ in rows})


TestMarks = MarksMachine.TestCase
TestMarks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.integers(0, 2**32), st.integers(1, 3000), st.sampled_from([1001, 5_000, 600_000]))
@settings(max_examples=60, deadline=None)
def test_of_many_marks_those_stay_that_matter(seed: int, steps: int, apart_ms: int) -> None:
    """Never too young; too old by a part of the age only, and never more than the most."""
    dice, marks, now_ms = random.Random(seed), Marks(MANY), 0
    times: list[int] = []
    for _ in range(steps):
        now_ms += dice.randrange(1000, apart_ms)
        marks.note(len(times), now_ms)
        times += [now_ms] * dice.randrange(1, 5)
        if dice.randrange(500) == 0:
            marks.forget_before(dice.randrange(len(times)))
    assert 0 < marks.count <= MANY
    for number in range(marks.rows()[0][0], len(times)):
        told_ms = marks.at(number)
        assert told_ms <= times[number]
        assert times[number] - told_ms <= (now_ms - told_ms) / 8


def test_a_day_of_messages_is_told_to_a_tenth() -> None:
    marks = Marks(256)
    for second in range(86_400):
        marks.note(second, second * 1000)
    assert marks.count <= 256
    for second in range(86_400):
        age_s, told_s = 86_400 - second, 86_400 - marks.at(second) / 1000
        assert age_s <= told_s <= age_s * 1.1 + 1
    assert all(marks.at(second) == second * 1000 for second in range(86_368, 86_400))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 500)), min_size=1, max_size=300))
@settings(max_examples=60, deadline=None)
def test_sizes_rise_and_are_exact_at_marks(batches: list[tuple[int, int]]) -> None:
    marks, index, size = Marks(128, True), 1, 0
    known: list[tuple[int, int]] = []
    for turn, (many, length) in enumerate(batches):
        marks.note(index, turn + 1, size)
        known.append((index, size))
        index, size = index + many, size + length
    told = [marks.size_at(number, index, size) for number in range(known[0][0], index + 1)]
    assert told == sorted(told)
    assert told[-1] == size
    if len(batches) <= 128:
        assert all(marks.size_at(number, index, size) == before for number, before in known)


@given(st.integers(0, 2**33), st.integers(0, 2**33))
def test_stamps_are_seconds_of_the_last_years(wall_s: int, start_s: int) -> None:
    """Those of three years before the start, and of one year after it."""
    stamp = to_stamp(wall_s * 1000 + 999)
    assert 0 < stamp < 1 << 32
    assert stamp & 31 == 0
    if -3 * 31_536_000 < wall_s - start_s < 31_536_000 and wall_s % (1 << 27):
        assert from_stamp(stamp, start_s * 1000) == wall_s * 1000

"""The checker of the runs under faults finds what it is there for, and nothing else."""

from __future__ import annotations

import pytest
from fault_ledger import Id, Ledger

QUEUE = "q"


def ledger(*arrived: tuple[int, bool], sent: int = 4, repeated: tuple[int, ...] = ()) -> Ledger:
    """One producer whose messages are all confirmed; (number, whether flagged) came."""
    made = Ledger()
    made.sent = {ident(number) for number in range(1, sent + 1)}
    made.confirm(*made.sent)
    made.repeated = {ident(number) for number in repeated}
    for number, redelivered in arrived:
        made.arrive(QUEUE, ident(number), redelivered)
    return made


def ident(number: int) -> Id:
    return "p", number


def plain(*numbers: int) -> list[tuple[int, bool]]:
    return [(number, False) for number in numbers]


def test_all_is_well() -> None:
    assert ledger(*plain(1, 2, 3, 4)).faults({QUEUE}) == []
    # What comes again says so, and may come later than others.
    assert ledger(*plain(1, 2, 3), (1, True), (2, True), *plain(4)).faults({QUEUE}) == []
    # The first delivery is not always the one that is read first.
    assert ledger((1, True), *plain(1, 2, 3, 4)).faults({QUEUE}) == []


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (ledger(*plain(1, 2, 4)), "1 confirmed messages are lost, as [('p', 3)]"),
        (ledger(*plain(1, 2, 3, 4, 9)), "1 messages were never sent, as [('p', 9)]"),
        (ledger(*plain(1, 2, 2, 3, 4)), "q: ('p', 2) came 2 times without a word"),
        (ledger(*plain(1, 3, 2, 4)), "q: ('p', 2) came after 3"),
    ],
)
def test_what_is_wrong_is_found(made: Ledger, said: str) -> None:
    assert made.faults({QUEUE}) == [said]
    outcome = made.outcome({QUEUE})
    assert outcome.lost + outcome.unexpected + outcome.unflagged + outcome.disordered == 1


def test_what_was_sent_twice_may_come_twice_and_late() -> None:
    made = ledger(*plain(1, 3, 2, 2, 4), repeated=(2,))
    assert made.faults({QUEUE}) == []


def test_order_counts_where_it_is_promised_only() -> None:
    assert ledger(*plain(2, 1, 4, 3)).faults(set()) == []


def test_two_dead_letters_of_one_message_are_two() -> None:
    made = ledger(*plain(1, 1, 2, 3, 4))
    made.twice = {QUEUE}
    assert made.faults(set()) == []

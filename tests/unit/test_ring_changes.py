"""Why a replica is in sync, or is not any more."""

from __future__ import annotations

import pytest

from warren.cluster.metadata import View
from warren.engine.ring_changes import CAUSES, DOWN, HAS_ALL, UNCLEAN, UNWANTED, changes_of


def view(in_sync: str, wanted: str = "abc") -> View:
    return View(1, in_sync[0], tuple(in_sync), (), tuple(wanted), 0)


@pytest.mark.parametrize("cause", CAUSES)
def test_whom_the_master_has_put_out(cause: str) -> None:
    changes = list(changes_of(view("abc"), view("ab"), {"c": cause}))
    assert changes == [("queue.unsynchronised", "c", CAUSES[cause])]


def test_others_who_leave_and_come() -> None:
    assert list(changes_of(view("abc"), view("bc"), {})) == [("queue.unsynchronised", "a", DOWN)]
    gone = [("queue.unsynchronised", "c", UNWANTED)]
    assert list(changes_of(view("abc"), view("ab", "ab"), {"c": "lag"})) == gone
    assert list(changes_of(view("ab"), view("abc"), {})) == [("queue.synchronised", "c", HAS_ALL)]
    assert not list(changes_of(view("abc"), view("cba"), {}))


def test_one_that_is_promoted_all_the_same_does_not_have_everything() -> None:
    unclean = View(5, "b", ("b", "c"), (), ("a", "b", "c"), 5)
    assert list(changes_of(view("a"), unclean, {})) == [
        ("queue.synchronised", "b", UNCLEAN),
        ("queue.synchronised", "c", HAS_ALL),
        ("queue.unsynchronised", "a", DOWN),
    ]

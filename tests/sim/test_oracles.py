"""What the simulator looks for in Raft: a leader has what was committed before its own term."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sim.oracles import Oracles
from sim.run_ring import run_ring
from sim.world import Violation
from warren.cluster.raft.types import Entry, EntryKind


def leader_with(terms: list[int]) -> Any:
    """A node whose log has entries of these terms."""
    log = SimpleNamespace(
        base_index=0, term_at=lambda index: terms[index - 1] if index <= len(terms) else None
    )
    return SimpleNamespace(name="n1", raft=SimpleNamespace(log=log))


def oracles_with(term: int, committed_in: int) -> Oracles:
    world = SimpleNamespace(seed=0, now_us=0)
    oracles = Oracles(SimpleNamespace(world=world))  # type: ignore[arg-type]
    oracles.committed[1] = Entry(term, EntryKind.COMMAND, b"")
    oracles.committed_in[1] = committed_in
    oracles.commit_max = 1
    return oracles


def test_a_leader_of_a_later_term_has_what_is_committed() -> None:
    with pytest.raises(Violation, match="without the committed entry 1"):
        oracles_with(term=1, committed_in=1)._saw_leader(leader_with([]), 2)


def test_a_leader_of_an_earlier_term_does_not_need_it() -> None:
    """Its votes were on their way while others voted, and committed, without it."""
    oracles_with(term=1, committed_in=5)._saw_leader(leader_with([]), 4)


def test_votes_that_came_after_the_next_term_had_begun() -> None:
    run_ring(11000286)

"""Every rule is needed: switched off, it is missed.

A schedule made by hand catches each rule that dice do not, or not soon. The others have a seed that
is known to catch them; when a change of the code moves it, the next ones do, within a bound.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from sim import mutants, scenarios
from sim.run import run_seed
from sim.world import Violation
from warren.cluster.raft.raft import Raft

#: mutant -> (a seed that catches it, by what, how many seeds catch it from anywhere)
BY_SEED: dict[type[Raft], tuple[int, str, int]] = {
    mutants.AnswersBeforeSync: (0, "committed but on", 5),
    mutants.OverclaimsInHeartbeats: (0, "committed but on", 20),
    mutants.AppliesUnsynced: (0, "would take back", 10),
    mutants.CountsItselfBeforeSync: (0, "committed but on", 10),
    mutants.VotesBeforeSync: (4, "forgotten its term", 60),
    mutants.ForgetsVote: (44, "votes for", 1000),
    mutants.VotesForShortLogs: (1, "leads without the committed", 60),
    mutants.CommitsOldTerms: (2, "reads at", 1000),
    mutants.CommitsBeyondMatch: (2, "commits another entry", 300),
    mutants.CountsLearners: (5, "committed but on", 100),
    mutants.CountsSyncAcrossTruncation: (7, "committed but on", 200),
    mutants.ChangesTwoAtOnce: (0, "leads without the committed", 200),
    mutants.SnapshotsWithoutMembers: (39, "changes more than one voter", 1000),
    mutants.MixesSnapshots: (8, "damaged on its way", 500),
    mutants.ReadsWithoutMajority: (19, "reads at", 500),
    mutants.ReadsBeforeOwnCommit: (2, "reads at", 60),
    mutants.NoBackOff: (0, "does not recover", 20),
}
#: Those that dice do not catch, or not for the reason that the rule is there for.
BY_SCENARIO: dict[type[Raft], tuple[scenarios.Scenario, str]] = {
    mutants.ForgetsVote: (scenarios.votes_again_after_crash, "votes for"),
    mutants.CommitsOldTerms: (scenarios.figure_8, "leads without the committed"),
    mutants.TruncatesOnOldAppend: (scenarios.old_append_comes_late, "dropped entries"),
    mutants.ChangesBeforeOwnCommit: (
        scenarios.change_before_own_commit,
        "leads without the committed",
    ),
    mutants.ChangesTwoAtOnce: (scenarios.shrinks_while_parted, "leads without the committed"),
    mutants.LeavesTooEarly: (scenarios.leader_removes_itself_and_crashes, "does not lead"),
    mutants.ForgetsTheRemoved: (scenarios.removed_node_learns_of_it, "believes to be a member"),
    mutants.ReusesReadNames: (scenarios.answer_to_an_earlier_life, "reads at"),
    mutants.ReadsWithoutMajority: (scenarios.deposed_leader_reads, "reads at"),
    mutants.SnapshotsWithoutMembers: (scenarios.members_outlive_the_log, "changed the members"),
    mutants.HoldsOnToTransfer: (scenarios.successor_is_dead, "still waits"),
    mutants.NoPreVote: (scenarios.isolated_node_returns, "unseated"),
    mutants.NoStickiness: (scenarios.deaf_follower, "unseated"),
    mutants.NoCheckQuorum: (scenarios.deaf_leader, "not replaced"),
}


def name_of(value: object) -> str | None:
    return value.__name__ if isinstance(value, type) else None


def test_no_mutant_is_left_out() -> None:
    assert set(BY_SEED) | set(BY_SCENARIO) == set(mutants.RAFTS)


def first_caught(mutant: type[Raft], seeds: Iterable[int]) -> str:
    """What is missed first in these schedules."""
    for seed in seeds:
        try:
            run_seed(seed, raft_class=mutant)
        except Violation as violation:
            return str(violation)
    return "nothing"


@pytest.mark.parametrize("mutant", BY_SEED, ids=name_of)
def test_a_seed_catches(mutant: type[Raft]) -> None:
    seed, by, bound = BY_SEED[mutant]
    assert by in first_caught(mutant, range(seed, seed + bound))


@pytest.mark.parametrize("mutant", BY_SCENARIO, ids=name_of)
def test_a_schedule_catches(mutant: type[Raft]) -> None:
    scenario, by = BY_SCENARIO[mutant]
    for seed in range(2):
        with pytest.raises(Violation, match=by):
            scenario(seed, mutant)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", BY_SEED, ids=name_of)
def test_dice_catch(mutant: type[Raft]) -> None:
    _, _, bound = BY_SEED[mutant]
    assert first_caught(mutant, range(50_000, 50_000 + bound)) != "nothing"


def test_requests_that_are_applied_twice_are_caught() -> None:
    """In every fourth schedule or so."""
    caught = []
    for seed in range(40):
        try:
            run_seed(seed, sessions_class=mutants.AppliesTwice)
        except Violation as violation:
            caught.append(str(violation))
    assert len(caught) >= 3
    assert all("was applied at" in what for what in caught)

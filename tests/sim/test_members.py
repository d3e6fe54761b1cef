"""Whole members in the simulator: by dice, by hand, and with a rule missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from sim import member_mutants
from sim.member_cluster import MemberCluster
from sim.run_members import recover, run_members
from sim.world import Violation
from warren.cluster.member import Member
from warren.cluster.member_effects import Change, Why
from warren.cluster.metadata import Node

CHUNK = 10

#: Seeds that found a fault of the product once, and which.
FOUND = {
    7_000_838: "after a start an image of definitions was ahead of the entry it was said to be of",
}
#: mutant -> (a seed that catches it, by what, how many seeds catch it from anywhere)
BY_SEED: dict[type[Member], tuple[int, str, int]] = {
    member_mutants.DoneTooEarly: (0, "lacks it", 20),
    member_mutants.ProposesTwice: (0, "was applied at", 20),
    member_mutants.WakesUpReady: (55, "does not know what was committed", 40),
    member_mutants.ServesTheOldEra: (0, "transient before all stopped", 20),
}


@pytest.mark.parametrize("first", range(0, 20, CHUNK))
def test_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_members(seed)


@pytest.mark.parametrize("seed", sorted(FOUND))
def test_what_was_found_before(seed: int) -> None:
    run_members(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("first", range(10_000, 10_150, CHUNK))
def test_more_random_schedules(first: int) -> None:
    for seed in range(first, first + CHUNK):
        run_members(seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_schedules_are_not_empty() -> None:
    counts: Counter[object] = Counter()
    for seed in range(300, 325):
        result = run_members(seed)
        counts += result.counts
        counts["answered"] += result.answered
    least = {
        "answered": 2000,
        "ready": 1000,
        "promoted": 5,
        "writes lost": 5,
        Change.DOWN: 50,
        Change.UP: 5,
        Change.REGISTERED: 200,
        Change.RESTORED: 100,
        "all stopped": 10,
        "eras": 20,
    }
    for what, at_least in least.items():
        assert counts[what] >= at_least, f"{what}: {counts[what]} times"


def first_caught(mutant: type[Member], seeds: Iterable[int]) -> str:
    for seed in seeds:
        try:
            run_members(seed, member_class=mutant)
        except Violation as violation:
            return str(violation)
    return "nothing"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", BY_SEED, ids=lambda mutant: mutant.__name__)
def test_a_seed_catches(mutant: type[Member]) -> None:
    seed, by, bound = BY_SEED[mutant]
    assert by in first_caught(mutant, range(seed, seed + bound))


# -- by hand


def settled(
    founders: int = 3, spares: int = 0, seed: int = 1, member_class: type[Member] = Member
) -> MemberCluster:
    cluster = MemberCluster(seed, founders, spares, member_class=member_class)
    cluster.start()
    assert cluster.run_until(lambda: all(n.member.ready for n in cluster.nodes.values()), 5_000)
    return cluster


def alive(cluster: MemberCluster, name: str) -> bool | None:
    """What the leader's table says about a node."""
    leader = cluster.leader
    assert leader is not None
    node = leader.member.nodes.get(name)  # type: ignore[attr-defined]
    return node.is_alive if node is not None else None


def follower_of(cluster: MemberCluster) -> str:
    return next(name for name in cluster.nodes if cluster.nodes[name] is not cluster.leader)


def test_peace() -> None:
    """Nobody is declared down for nothing, and all know the cluster's id."""
    cluster = settled(founders=5)
    cluster.run_ms(30_000)
    assert cluster.promises.counts[Change.DOWN] == 0
    assert {node.member.cluster_id for node in cluster.nodes.values()} == {"sim"}
    assert {node.member._machine.metadata.cluster_id for node in cluster.nodes.values()} == {"sim"}
    recover(cluster)


def test_two_of_three_are_a_cluster() -> None:
    cluster = MemberCluster(3, 3)
    for name in ("n1", "n2"):
        cluster.nodes[name].start()
    two = [cluster.nodes[name] for name in ("n1", "n2")]
    assert cluster.run_until(lambda: all(node.member.ready for node in two), 3_000)
    two[0].propose(b"x")
    two[0].pump()
    assert cluster.run_until(lambda: not two[0].asked, 1_000)
    cluster.nodes["n3"].start()
    recover(cluster)


def test_a_node_alone_is_not_ready() -> None:
    cluster = MemberCluster(3, 3)
    cluster.nodes["n1"].start()
    cluster.run_ms(5_000)
    assert not cluster.nodes["n1"].member.ready
    assert not cluster.nodes["n1"].member.has_quorum(cluster.nodes["n1"].now_ms)


def test_a_closed_port_tells_at_once() -> None:
    cluster = settled()
    name = follower_of(cluster)
    cluster.nodes[name].crash()
    assert cluster.run_until(lambda: alive(cluster, name) is False, 500)


def test_silence_tells_after_two_seconds_and_a_word_brings_back() -> None:
    cluster = settled()
    name = follower_of(cluster)
    node = cluster.nodes[name]
    cluster.network.part([name], list(cluster.nodes))
    cluster.run_ms(1_800)
    assert alive(cluster, name) is True
    assert node.member.ready
    assert cluster.run_until(lambda: alive(cluster, name) is False, 700)
    cluster.run_ms(1_200)
    assert not node.member.ready
    assert not node.member.has_quorum(node.now_ms)
    cluster.network.heal()
    assert cluster.run_until(lambda: node.member.ready, 3_000)
    assert alive(cluster, name) is True
    assert cluster.promises.counts[Change.UP] == 3
    recover(cluster)


def ask_right_after_a_heal(seed: int, member_class: type[Member]) -> None:
    cluster = settled(seed=seed, member_class=member_class)
    name = follower_of(cluster)
    cluster.network.part([name], list(cluster.nodes))
    assert cluster.run_until(lambda: alive(cluster, name) is False, 3_000)
    cluster.network.heal()
    asking = cluster.nodes[name]
    for number in range(20):
        asking.propose(b"%d" % number)
        asking.pump()
        cluster.run_ms(20)
    assert cluster.run_until(lambda: not asking.asked, 5_000)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_told_before_all_know_that_a_node_is_back(seed: int) -> None:
    ask_right_after_a_heal(seed, Member)
    with pytest.raises(Violation, match="which is down for"):
        ask_right_after_a_heal(seed, member_mutants.TellsBeforeItIsBack)


def test_done_waits_for_a_slow_node_until_it_is_down() -> None:
    cluster = settled()
    leader = cluster.leader
    assert leader is not None
    sleeper = cluster.nodes[follower_of(cluster)]
    sleeper.pause()
    leader.propose(b"x")  # type: ignore[attr-defined]
    leader.pump()
    cluster.run_ms(1_500)
    assert b"x" not in cluster.promises.answered
    assert cluster.run_until(lambda: b"x" in cluster.promises.answered, 1_500)
    sleeper.resume()
    recover(cluster)


def test_a_joining_node_becomes_a_voter() -> None:
    cluster = settled(founders=1, spares=2)
    assert cluster.run_until(
        lambda: cluster.nodes["n1"].raft.membership.voters == ("n1", "n2", "n3"), 5_000
    )
    recover(cluster)


def test_a_node_that_is_down_can_be_forgotten() -> None:
    cluster = settled(founders=4)
    name = follower_of(cluster)
    leader = cluster.leader
    assert leader is not None
    member: Member = leader.member  # type: ignore[attr-defined]
    leader.asked[member.forget(name)] = b"too early"  # type: ignore[attr-defined]
    leader.pump()
    cluster.run_ms(500)
    assert cluster.promises.counts[Why.REFUSED] == 1
    cluster.nodes[name].crash()
    assert cluster.run_until(lambda: alive(cluster, name) is False, 1_000)
    ticket = member.forget(name)
    leader.asked[ticket] = b"forget"  # type: ignore[attr-defined]
    leader.ledger.commands[b"forget"] = 0  # type: ignore[attr-defined]
    for other in cluster.nodes.values():
        other.ledger.commands[b"forget"] = 0
    leader.pump()
    assert cluster.run_until(lambda: name not in leader.raft.membership.nodes, 2_000)
    assert alive(cluster, name) is None


def test_a_long_sleep_costs_readiness_until_all_is_known() -> None:
    cluster = settled()
    sleeper = cluster.nodes[follower_of(cluster)]
    sleeper.pause()
    cluster.run_ms(4_000)
    leader = cluster.leader
    assert leader is not None
    leader.propose(b"meanwhile")  # type: ignore[attr-defined]
    leader.pump()
    cluster.run_ms(500)
    sleeper.resume()
    assert not sleeper.member.ready
    assert cluster.run_until(lambda: sleeper.member.ready, 2_000)
    assert b"meanwhile" in sleeper.ledger.commands
    assert sleeper.member.nodes[sleeper.name] == Node(sleeper.boot, True)


def test_hand_over() -> None:
    cluster = settled()
    leader = cluster.leader
    assert leader is not None
    assert leader.member.hand_over()  # type: ignore[attr-defined]
    leader.pump()
    assert cluster.run_until(
        lambda: cluster.leader is not None and cluster.leader is not leader, 100
    )


def eras(cluster: MemberCluster) -> set[int]:
    return {node.member._machine.metadata.era for node in cluster.nodes.values()}


def is_ready(cluster: MemberCluster) -> bool:
    return all(node.is_up and node.member.ready for node in cluster.nodes.values())


@pytest.mark.parametrize("seed", range(5))
def test_what_is_transient_outlives_a_rolling_restart(seed: int) -> None:
    cluster = settled(seed=seed)
    before = eras(cluster)
    for node in cluster.nodes.values():
        node.crash()
        cluster.run_ms(300)
        node.start()
        assert cluster.run_until(lambda: is_ready(cluster), 3_000)
    assert eras(cluster) == before


@pytest.mark.parametrize("seed", range(5))
def test_what_is_transient_ends_when_all_have_stopped(seed: int) -> None:
    cluster = settled(seed=seed)
    before = max(eras(cluster))
    for node in cluster.nodes.values():
        node.crash()
    for node in cluster.nodes.values():
        node.start()
    assert cluster.run_until(lambda: is_ready(cluster), 5_000)
    (now,) = eras(cluster)
    assert now > before


def test_a_node_that_stays_away_does_not_keep_what_is_transient() -> None:
    """The others cannot know that it does not run, until it is silent for long enough."""
    cluster = settled()
    before = max(eras(cluster))
    for node in cluster.nodes.values():
        node.crash()
    two = [cluster.nodes[name] for name in ("n1", "n2")]
    cluster.network.part(["n3"], ["n1", "n2"])
    for node in two:
        node.start()
    assert cluster.run_until(lambda: all(node.member.ready for node in two), 5_000)
    assert all(node.member._machine.metadata.era > before for node in two)


def test_one_who_was_cut_off_ends_nothing() -> None:
    cluster = settled()
    before = eras(cluster)
    name = follower_of(cluster)
    cluster.network.part([name], list(cluster.nodes))
    assert cluster.run_until(lambda: alive(cluster, name) is False, 3_000)
    cluster.network.heal()
    assert cluster.run_until(lambda: is_ready(cluster), 3_000)
    assert eras(cluster) == before

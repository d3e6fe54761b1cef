"""Schedules made by hand, for faults that dice seldom bring about. Each has a story to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from msgspec import structs

from sim.cluster import Cluster
from sim.node import SimNode
from warren.cluster.raft import codec
from warren.cluster.raft.effects import Position
from warren.cluster.raft.messages import Append, ReadReply, VoteRequest
from warren.cluster.raft.raft import Raft


def settled(
    seed: int, raft_class: type[Raft], founders: int, spares: int = 0
) -> tuple[Cluster, SimNode]:
    """A cluster with a leader and nothing left to do, and that leader."""
    cluster = Cluster(seed, founders, spares, raft_class=raft_class)
    cluster.start()
    cluster.run_ms(3_000)
    leader = cluster.leader
    if leader is None:
        cluster.oracles.fail("no leader in three seconds of peace")
        raise AssertionError
    return cluster, leader


def followers_of(cluster: Cluster, leader: SimNode) -> list[SimNode]:
    voters = leader.raft.membership.voters
    return [cluster.nodes[name] for name in voters if name != leader.name]


def propose(node: SimNode, command: bytes = b"x") -> None:
    node.raft.propose(command)
    node.pump()


def must_still_lead(cluster: Cluster, leader: SimNode, term: int) -> None:
    if not leader.is_leader or leader.raft.term != term:
        cluster.oracles.fail("a leader that a majority could hear was unseated")


def isolated_node_returns(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A node that was alone for a while comes back; nobody else notices."""
    cluster, leader = settled(seed, raft_class, 3)
    term = leader.raft.term
    cluster.network.part([followers_of(cluster, leader)[0].name], list(cluster.nodes))
    cluster.run_ms(4_000)
    cluster.network.heal()
    cluster.run_ms(2_000)
    must_still_lead(cluster, leader, term)


def deaf_follower(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A node does not hear its leader, but all others: they do not help it to unseat that one."""
    cluster, leader = settled(seed, raft_class, 5)
    term = leader.raft.term
    cluster.network.cut(leader.name, followers_of(cluster, leader)[0].name)
    cluster.run_ms(4_000)
    must_still_lead(cluster, leader, term)


def leader_dies(seed: int, raft_class: type[Raft] = Raft) -> None:
    """Within a second of the leader's death the next one has committed something."""
    cluster, leader = settled(seed, raft_class, 3)
    cluster.run_ms(cluster.world.random.randint(0, 100))
    before = cluster.oracles.commit_max
    leader.crash()
    if not cluster.run_until(lambda: cluster.oracles.commit_max > before, 1_000):
        cluster.oracles.fail("no new leader has committed anything for a second")


def deaf_leader(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A leader is heard but hears nobody: it can commit nothing, so another one takes over."""
    cluster, leader = settled(seed, raft_class, 3)
    followers = followers_of(cluster, leader)
    for follower in followers:
        cluster.network.cut(follower.name, leader.name)
    if not cluster.run_until(lambda: any(node.is_leader for node in followers), 4_000):
        cluster.oracles.fail("a leader that hears nobody was not replaced")
    successor = next(node for node in followers if node.is_leader)
    propose(successor)
    before = cluster.oracles.commit_max
    if not cluster.run_until(lambda: cluster.oracles.commit_max > before, 2_000):
        cluster.oracles.fail("the new leader commits nothing")


def successor_is_dead(seed: int, raft_class: type[Raft] = Raft) -> None:
    """Leadership is to go to a node that is down: the leader goes on by itself."""
    cluster, leader = settled(seed, raft_class, 3)
    target = followers_of(cluster, leader)[0]
    target.crash()
    leader.raft.transfer_leader(target.name)
    leader.pump()
    cluster.run_ms(1_000)
    if not isinstance(leader.raft.propose(b"x"), Position):
        cluster.oracles.fail("the leader still waits for a dead successor")


def successor_takes_over(seed: int, raft_class: type[Raft] = Raft) -> None:
    """Leadership goes where it is told to, within a few round trips."""
    cluster, leader = settled(seed, raft_class, 3)
    target = followers_of(cluster, leader)[0]
    leader.raft.transfer_leader(target.name)
    leader.pump()
    if not cluster.run_until(lambda: target.is_leader, 100):
        cluster.oracles.fail("leadership was not handed over")


def votes_again_after_crash(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A node votes, crashes, and is asked by another candidate of the same term."""
    cluster, leader = settled(seed, raft_class, 3)
    one, other = followers_of(cluster, leader)
    leader.crash()
    one.crash()
    cluster.run_ms(1_000)
    term = other.raft.term + 10
    request = VoteRequest(term, 100, term - 1, False, False)
    other.deliver(leader.name, codec.encode(request))
    cluster.run_ms(200)
    other.crash()
    other.start()
    other.deliver(one.name, codec.encode(request))
    cluster.run_ms(200)


def figure_8(seed: int, raft_class: type[Raft] = Raft) -> None:
    """An entry of an earlier term gets to a majority, counts as committed, and is overwritten."""
    cluster, first = settled(seed, raft_class, 5)
    second, *rest = followers_of(cluster, first)
    # (a) The first leader writes an entry that only the second node gets.
    cluster.network.part([first.name, second.name], [node.name for node in rest])
    propose(first, b"early")
    cluster.run_ms(100)
    first.crash()
    second.crash()
    # (b) A leader of a later term writes one that nobody else gets.
    cluster.network.heal()
    cluster.network.intercept = lambda source, target, data: isinstance(codec.decode(data), Append)
    cluster.run_until(lambda: any(node.is_leader for node in rest), 3_000)
    cluster.run_ms(50)
    late = next(node for node in rest if node.is_leader)
    late.crash()
    # (c) The first leads again. Its early entry gets to a majority, a newer one to nobody.
    _, other = [node for node in rest if node is not late]
    other.crash()

    def early_entries_only(source: str, target: str, data: bytes) -> bool:
        message = codec.decode(data)
        if not isinstance(message, Append) or all(entry.term < 2 for entry in message.entries):
            return False
        bare = codec.encode(structs.replace(message, entries=()))
        cluster.world.after(1_000, lambda: cluster.network.release(source, target, bare))
        return True

    cluster.settings = replace(cluster.settings, append_entries=1)
    cluster.network.intercept = early_entries_only
    first.start()
    second.start()
    cluster.run_until(lambda: first.is_leader or second.is_leader, 5_000)
    cluster.run_ms(200)
    # (d) The later one is back, and may overwrite the early entry: it must not be committed.
    first.crash()
    second.crash()
    cluster.network.intercept = None
    late.start()
    other.start()
    cluster.run_ms(4_000)


def change_before_own_commit(seed: int, raft_class: type[Raft] = Raft) -> None:
    """Two leaders change the members, neither change committed when the other is made.

    The old leader A adds a fifth voter, which only that one hears of. B leads next and removes A
    at once, with C's help. Then A comes back: with D and the fifth it has a majority of its five.
    """
    cluster, a = settled(seed, raft_class, 4, spares=1)
    fifth = cluster.nodes["n5"]
    a.raft.add_learner("n5")
    a.pump()
    cluster.run_ms(500)
    b, c, d = followers_of(cluster, a)
    cluster.network.part([a.name, "n5"], [b.name, c.name, d.name])
    a.raft.promote("n5")
    a.pump()
    cluster.run_ms(50)
    a.crash()
    fifth.crash()
    sides: list[SimNode] = []

    def outsider_hears_nothing(source: str, target: str, data: bytes) -> bool:
        """Of the new leader's peers, the last one votes for it and gets none of its entries."""
        if not sides and isinstance(codec.decode(data), Append):
            others = [node for node in (b, c, d) if node.name != source]
            sides.extend([cluster.nodes[source], *others])
        return bool(sides) and source == sides[0].name and target == sides[2].name

    cluster.network.intercept = outsider_hears_nothing
    cluster.run_until(lambda: bool(sides), 3_000)
    second, helper, outsider = sides
    second.raft.remove(a.name)
    second.pump()
    cluster.run_ms(300)
    cluster.network.heal()
    cluster.network.intercept = None
    cluster.network.part([second.name, helper.name], [a.name, outsider.name, "n5"])
    a.start()
    fifth.start()
    cluster.run_ms(4_000)


def shrinks_while_parted(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A leader on the smaller side removes the others all at once; the larger side elects."""
    cluster, leader = settled(seed, raft_class, 5)
    friend, *others = [node.name for node in followers_of(cluster, leader)]
    cluster.network.part([leader.name, friend], others)
    for name in others:
        leader.raft.remove(name)
        leader.pump()
    cluster.run_ms(4_000)
    for node in cluster.up:
        propose(node)
    cluster.run_ms(500)


def leader_removes_itself_and_crashes(seed: int, raft_class: type[Raft] = Raft) -> None:
    """The one that is left has the shorter log, so only the removed one can lead to the end."""
    cluster, leader = settled(seed, raft_class, 2)
    (other,) = followers_of(cluster, leader)
    cluster.network.part([leader.name], [other.name])
    leader.raft.remove(leader.name)
    leader.pump()
    cluster.run_ms(100)
    leader.crash()
    cluster.network.heal()
    leader.start()
    if not cluster.run_until(lambda: other.is_leader, 5_000):
        cluster.oracles.fail("the node that is left does not lead")


def removed_node_learns_of_it(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A node that is removed gets to know it, and bothers nobody any more."""
    cluster, leader = settled(seed, raft_class, 3)
    removed = followers_of(cluster, leader)[0]
    leader.raft.remove(removed.name)
    leader.pump()
    cluster.run_ms(1_000)
    if removed.name in removed.raft.log.membership_at(removed.applied_index).nodes:
        cluster.oracles.fail("a removed node believes to be a member")
    before = cluster.oracles.counts["VoteRequest"]
    cluster.run_ms(5_000)
    if cluster.oracles.counts["VoteRequest"] > before:
        cluster.oracles.fail("a removed node campaigns")


def answer_to_an_earlier_life(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A node asks where to read, crashes, asks again, and gets the first answer."""
    cluster, leader = settled(seed, raft_class, 3)
    reader = followers_of(cluster, leader)[0]
    kept: list[tuple[str, str, bytes]] = []

    def keep(source: str, target: str, data: bytes) -> bool:
        if isinstance(codec.decode(data), ReadReply):
            kept.append((source, target, data))
            return True
        return False

    cluster.network.intercept = keep
    reader.read(lambda _: None)
    cluster.run_ms(100)
    reader.crash()
    reader.start()
    propose(leader)
    cluster.run_ms(300)
    reader.read(lambda _: None)
    cluster.run_ms(20)
    cluster.network.intercept = None
    for message in kept:
        cluster.network.release(*message)
    cluster.run_ms(500)


def deposed_leader_reads(seed: int, raft_class: type[Raft] = Raft) -> None:
    """A leader whose clock stands still does not notice that another one has taken over."""
    cluster, leader = settled(seed, raft_class, 3)
    leader.clock_rate = 0.5
    others = followers_of(cluster, leader)
    cluster.network.part([leader.name], [node.name for node in others])
    cluster.run_until(lambda: any(node.is_leader for node in others), 3_000)
    for node in others:
        propose(node)
    cluster.run_ms(100)
    answers: list[bool] = []
    leader.read(answers.append)
    cluster.run_ms(200)
    if not leader.is_leader or answers:
        cluster.oracles.fail("the old leader was to be in doubt")


def members_outlive_the_log(seed: int, raft_class: type[Raft] = Raft) -> None:
    """The entries that made the members are gone on all nodes, and all nodes restart."""
    cluster, leader = settled(seed, raft_class, 3, spares=1)
    cluster.settings = leader.raft.settings = replace(cluster.settings, entries_kept=0)
    for change in (leader.raft.add_learner, leader.raft.promote):
        if not isinstance(change("n4"), Position):
            cluster.oracles.fail("the new node does not become a member")
        leader.pump()
        cluster.run_ms(300)
    for node in cluster.up:
        node.raft.settings = cluster.settings
        node.take_snapshot()
    cluster.run_ms(100)
    for node in cluster.up:
        node.crash()
        node.start()
    if any(node.raft.membership.voters != tuple(cluster.nodes) for node in cluster.up):
        cluster.oracles.fail("a restart has changed the members")


def old_append_comes_late(seed: int, raft_class: type[Raft] = Raft) -> None:
    """An append is overtaken by all that follow and comes when its entries are long committed."""
    cluster, leader = settled(seed, raft_class, 3)
    follower = followers_of(cluster, leader)[0]
    kept: list[tuple[str, str, bytes]] = []

    def copy(source: str, target: str, data: bytes) -> bool:
        message = codec.decode(data)
        if target == follower.name and isinstance(message, Append) and message.entries:
            kept.append((source, target, data))
        return False

    cluster.network.intercept = copy
    for number in range(5):
        propose(leader, b"%d" % number)
        cluster.run_ms(30)
    cluster.network.intercept = None
    cluster.network.cut(leader.name, follower.name)
    for message in kept[:1]:
        follower.deliver(*message[::2])
    cluster.run_ms(100)
    if (
        follower.disk.stored.base_index + len(follower.disk.stored.entries)
        < leader.raft.commit_index
    ):
        cluster.oracles.fail("a late append has dropped entries that were acknowledged")


#: (seed, the Raft to try)
Scenario = Callable[..., None]

SCENARIOS: tuple[Scenario, ...] = (
    isolated_node_returns,
    deaf_follower,
    deaf_leader,
    leader_dies,
    successor_is_dead,
    successor_takes_over,
    votes_again_after_crash,
    figure_8,
    change_before_own_commit,
    shrinks_while_parted,
    leader_removes_itself_and_crashes,
    removed_node_learns_of_it,
    answer_to_an_earlier_life,
    deposed_leader_reads,
    members_outlive_the_log,
    old_append_comes_late,
)

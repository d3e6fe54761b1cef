"""Raft by hand: single inputs and the effects they have."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from warren.cluster.raft.durability import HELD_MAX
from warren.cluster.raft.effects import (
    Apply,
    Effect,
    Persist,
    Position,
    ReadFailed,
    ReadReady,
    Refusal,
    Restore,
    Role,
    RoleChanged,
    Send,
    SnapshotNeeded,
)
from warren.cluster.raft.messages import (
    Append,
    AppendReply,
    InstallSnapshot,
    Message,
    ReadReply,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.settings import Settings
from warren.cluster.raft.types import (
    COMMAND_BYTES_MAX,
    Entry,
    EntryKind,
    HardState,
    Membership,
    ProtocolError,
    Snapshot,
    Stored,
    founding,
)

THREE = founding(Membership(("a", "b", "c")))


def raft(stored: Stored = THREE, node: str = "a", **settings: int) -> Raft:
    return Raft(node, stored, Settings(**settings), lambda low, high: low, 1, 0)


def sent(effects: Iterable[Effect]) -> list[tuple[str, Message]]:
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, Send)]


def persist_of(effects: Iterable[Effect]) -> Persist:
    (persist,) = [effect for effect in effects if isinstance(effect, Persist)]
    return persist


def synced(node: Raft) -> list[Effect]:
    """Take the effects, sync what is to be synced at once, and so on until nothing is left."""
    done: list[Effect] = []
    while effects := node.take_effects():
        done += effects
        for effect in effects:
            if isinstance(effect, Persist):
                node.persisted(effect.token)
    return done


def leading(**settings: int) -> Raft:
    """A leader of three that has committed its first entry (index 2)."""
    node = raft(**settings)
    node.tick(1_000)
    synced(node)
    node.receive("b", VoteReply(1, True, True), 1_000)
    synced(node)
    node.receive("b", VoteReply(1, True, False), 1_000)
    synced(node)
    assert node.role is Role.LEADER
    node.receive("b", AppendReply(1, True, 2, 0, 0, 0), 1_001)
    synced(node)
    assert node.commit_index == 2
    return node


def command(term: int, data: bytes = b"x") -> Entry:
    return Entry(term, EntryKind.COMMAND, data)


def append(term: int, previous: tuple[int, int], *entries: Entry, commit: int = 0) -> Append:
    return Append(term, *previous, commit, 0, entries)


# -- elections


def test_a_silent_leader_is_first_asked_about() -> None:
    node = raft()
    node.tick(299)
    assert node.take_effects() == []
    node.tick(300)
    request = VoteRequest(1, 1, 0, True, False)
    assert sent(node.take_effects()) == [("b", request), ("c", request)]
    assert (node.role, node.term) == (Role.PRECANDIDATE, 0)


def test_a_candidate_asks_once_its_own_vote_is_synced() -> None:
    node = raft()
    node.tick(300)
    node.take_effects()
    node.receive("b", VoteReply(1, True, True), 301)
    effects = node.take_effects()
    assert sent(effects) == []
    persist = persist_of(effects)
    assert persist.hard_state == HardState(1, "a")
    node.persisted(persist.token)
    request = VoteRequest(1, 1, 0, False, False)
    assert sent(node.take_effects()) == [("b", request), ("c", request)]


def test_a_vote_is_given_once_it_is_synced() -> None:
    node = raft()
    node.receive("b", VoteRequest(5, 1, 0, False, False), 10)
    effects = node.take_effects()
    assert sent(effects) == []
    assert persist_of(effects).hard_state == HardState(5, "b")
    node.persisted(persist_of(effects).token)
    assert sent(node.take_effects()) == [("b", VoteReply(5, True, False))]
    node.receive("c", VoteRequest(5, 9, 4, False, False), 11)
    assert sent(synced(node)) == [("c", VoteReply(5, False, False))]


def test_a_vote_outlives_a_restart() -> None:
    node = raft(Stored(HardState(5, "b"), entries=THREE.entries))
    node.receive("c", VoteRequest(5, 9, 4, False, False), 10)
    assert sent(synced(node)) == [("c", VoteReply(5, False, False))]


def test_who_hears_a_leader_does_not_vote() -> None:
    node = raft()
    node.receive("b", append(1, (1, 0)), 10)
    synced(node)
    node.receive("c", VoteRequest(2, 9, 1, True, False), 20)
    node.receive("c", VoteRequest(2, 9, 1, False, False), 20)
    assert synced(node) == []
    assert node.term == 1
    node.receive("c", VoteRequest(2, 9, 1, False, True), 20)
    assert sent(synced(node)) == [("c", VoteReply(2, True, False))]


def test_a_node_that_knows_nobody_does_not_vote() -> None:
    node = raft(Stored(), "d")
    node.receive("c", VoteRequest(2, 9, 1, False, False), 20)
    assert sent(synced(node)) == [("c", VoteReply(2, False, False))]


def test_a_learner_does_not_campaign() -> None:
    node = raft(founding(Membership(("a", "b"), ("c",))), "c")
    node.tick(5_000)
    assert sent(synced(node)) == []
    assert node.role is Role.FOLLOWER


def test_a_single_node_leads_itself() -> None:
    node = raft(founding(Membership(("a",))))
    node.tick(300)
    effects = synced(node)
    assert node.role is Role.LEADER
    assert RoleChanged(Role.LEADER, 1, "a") in effects
    assert node.propose(b"x") == Position(1, 3)
    effects = synced(node)
    assert [e for e in effects if isinstance(e, Apply)] == [Apply(3, (command(1),))]
    assert node.read_index() == (1, 1)
    assert ReadReady((1, 1), 3) in synced(node)


def test_a_leader_that_is_not_answered_steps_down() -> None:
    node = leading()
    node.tick(1_601)
    assert (node.role, node.leader) == (Role.FOLLOWER, None)


def test_timeout_now_is_the_leaders_word_only() -> None:
    node = raft()
    node.receive("b", append(1, (1, 0)), 10)
    node.receive("c", TimeoutNow(1), 11)
    assert node.role is Role.FOLLOWER
    node.receive("b", TimeoutNow(1), 11)
    assert node.role is Role.CANDIDATE
    assert ("c", VoteRequest(2, 1, 0, False, True)) in sent(synced(node))


# -- the log


def test_entries_are_acknowledged_once_they_are_synced() -> None:
    node = raft()
    node.receive("b", append(1, (1, 0), command(1), command(1)), 10)
    effects = node.take_effects()
    assert sent(effects) == []
    node.persisted(persist_of(effects).token)
    assert sent(node.take_effects()) == [("b", AppendReply(1, True, 3, 0, 0, 0))]


def test_a_slow_disk_does_not_silence_a_node() -> None:
    node = raft()
    node.receive("b", append(1, (1, 0)), 10)
    synced(node)
    node.receive("b", append(1, (1, 0), command(1)), 20)
    assert sent(node.take_effects()) == []
    node.receive("b", append(1, (2, 1)), 30)
    assert sent(node.take_effects()) == [("b", AppendReply(1, True, 1, 0, 0, 0))]


def test_a_sync_does_not_count_for_entries_that_came_after_it() -> None:
    node = raft()
    node.receive("b", append(1, (1, 0), command(1, b"old")), 10)
    first = persist_of(node.take_effects())
    node.receive("c", append(2, (1, 0), command(2, b"new"), commit=2), 20)
    second = persist_of(node.take_effects())
    node.persisted(first.token)
    assert node.stable_index == 1
    # What waited for the first sync says so to the old leader, in the old term.
    assert sent(node.take_effects()) == [("b", AppendReply(1, True, 2, 0, 0, 0))]
    node.persisted(second.token)
    effects = node.take_effects()
    assert sent(effects) == [("c", AppendReply(2, True, 2, 0, 0, 0))]
    assert Apply(2, (command(2, b"new"),)) in effects


def test_a_gap_is_refused_with_a_hint() -> None:
    stored = Stored(HardState(3), entries=(*THREE.entries, command(1), command(1), command(3)))
    node = raft(stored)
    node.receive("b", append(4, (9, 4)), 10)
    assert sent(synced(node)) == [("b", AppendReply(4, False, 9, 0, 4, 3))]
    node.receive("b", append(4, (4, 2)), 10)
    assert sent(synced(node)) == [("b", AppendReply(4, False, 4, 0, 3, 1))]


def test_a_leader_backs_off_by_the_hint() -> None:
    node = leading()
    for _ in range(5):
        node.propose(b"x")
    synced(node)
    node.receive("c", AppendReply(1, False, 1, 0, 0, 0), 1_010)
    (to, message) = sent(synced(node))[0]
    assert to == "c"
    assert isinstance(message, Append)
    assert (message.previous_index, len(message.entries)) == (0, 7)


def test_appends_follow_each_other_within_a_window() -> None:
    node = leading(append_entries=2, appends_in_flight=3)
    for _ in range(20):
        node.propose(b"x")
    to_b = [m for to, m in sent(synced(node)) if to == "b" and isinstance(m, Append)]
    assert [(m.previous_index, len(m.entries)) for m in to_b] == [(2, 2), (4, 2), (6, 2)]
    node.receive("b", AppendReply(1, True, 4, 0, 0, 0), 1_010)
    to_b = [m for to, m in sent(synced(node)) if to == "b" and isinstance(m, Append)]
    assert [(m.previous_index, len(m.entries)) for m in to_b] == [(8, 2)]


def test_a_leader_counts_itself_once_it_has_synced() -> None:
    node = leading()
    node.propose(b"x")
    persist = persist_of(node.take_effects())
    node.receive("b", AppendReply(1, True, 3, 0, 0, 0), 1_010)
    assert node.commit_index == 2
    node.persisted(persist.token)
    assert node.commit_index == 3


def test_a_leader_takes_no_more_than_it_may() -> None:
    node = leading(uncommitted_entries=3)
    answers = [node.propose(b"x") for _ in range(4)]
    assert answers[3] is Refusal.BUSY
    assert node.propose(bytes(COMMAND_BYTES_MAX + 1)) is Refusal.TOO_LARGE
    assert raft().propose(b"x") is Refusal.NOT_LEADER


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (append(2, (1, 0), command(3)), "still to come"),
        (append(2, (2, 1), command(1), command(0)), "go down"),
        (append(2, (1, 0), command(2, b"other"), commit=2), "cannot be another"),
        (append(1, (1, 0)), "second leader"),
        (InstallSnapshot(2, 9, 1, Membership(("a",)), 5, 0, 3, b"xyz"), "beyond"),
        (InstallSnapshot(2, 9, 1, Membership(("a",)), 5, 0, 0, b""), "empty chunk"),
        (InstallSnapshot(2, 9, 1, Membership(("a",)), 2, 7, 0, b"xy"), "damaged"),
    ],
)
def test_nonsense_is_refused(message: Message, why: str) -> None:
    node = raft()
    node.receive("c", append(1, (1, 0), command(1), commit=2), 10)
    synced(node)
    before = node.log.entries_from(1)
    with pytest.raises(ProtocolError, match=why):
        node.receive("b", message, 20)
    assert node.log.entries_from(1) == before


def test_nonsense_of_a_peer_is_refused() -> None:
    node = leading()
    for reply in (AppendReply(1, True, 99, 0, 0, 0), AppendReply(1, True, 2, 7, 0, 0)):
        with pytest.raises(ProtocolError):
            node.receive("b", reply, 1_010)
    with pytest.raises(ProtocolError):
        node.receive("a", AppendReply(1, True, 2, 0, 0, 0), 1_010)


# -- snapshots


def test_a_long_log_asks_for_a_snapshot() -> None:
    node = leading(snapshot_entries=5, entries_kept=2)
    for _ in range(4):
        node.propose(b"x")
    synced(node)
    node.receive("b", AppendReply(1, True, 6, 0, 0, 0), 1_010)
    assert SnapshotNeeded(6) in synced(node)
    node.compact(6, b"image")
    persist = persist_of(node.take_effects())
    assert persist.snapshot == Snapshot(6, 1, Membership(("a", "b", "c")), b"image")
    assert (persist.base_index, len(persist.entries)) == (4, 2)
    with pytest.raises(ValueError, match="no image"):
        node.compact(7, b"image")


def test_who_is_behind_the_log_gets_the_snapshot_in_chunks() -> None:
    node = leading(snapshot_entries=5, entries_kept=0, chunk_bytes=4)
    for _ in range(4):
        node.propose(b"x")
    synced(node)
    node.receive("b", AppendReply(1, True, 6, 0, 0, 0), 1_010)
    synced(node)
    node.compact(6, b"an image")
    synced(node)
    node.receive("c", AppendReply(1, False, 1, 0, 0, 0), 1_020)
    chunks = [m for to, m in sent(synced(node)) if isinstance(m, InstallSnapshot)]
    assert [(c.offset, c.data, c.total_bytes) for c in chunks] == [(0, b"an i", 8)]

    joiner = raft(Stored(), "c")
    joiner.receive("a", chunks[0], 10)
    assert sent(synced(joiner)) == [("a", SnapshotReply(1, 6, 4))]
    node.receive("c", SnapshotReply(1, 6, 4), 1_030)
    chunks = [m for to, m in sent(synced(node)) if isinstance(m, InstallSnapshot)]
    joiner.receive("a", chunks[0], 20)
    effects = joiner.take_effects()
    assert [e for e in effects if isinstance(e, Restore | Send)] == []
    joiner.persisted(persist_of(effects).token)
    effects = joiner.take_effects()
    assert sent(effects) == [("a", AppendReply(1, True, 6, 0, 0, 0))]
    assert [e.snapshot.data for e in effects if isinstance(e, Restore)] == [b"an image"]
    assert joiner.membership == Membership(("a", "b", "c"))


def test_a_restart_begins_with_the_snapshot() -> None:
    snapshot = Snapshot(6, 1, Membership(("a",)), b"image")
    node = raft(Stored(HardState(1), snapshot, 5, 1, (command(1), command(1))))
    assert node.take_effects() == [Restore(snapshot)]
    assert (node.commit_index, node.log.last_index) == (6, 7)


# -- members


def test_members_change_one_at_a_time() -> None:
    node = leading()
    assert node.add_learner("a") is Refusal.ALREADY_MEMBER
    assert node.add_learner("d") == Position(1, 3)
    assert node.membership.learners == ("d",)
    assert node.add_learner("e") is Refusal.CHANGE_PENDING
    synced(node)
    node.receive("b", AppendReply(1, True, 3, 0, 0, 0), 1_010)
    assert node.promote("e") is Refusal.NOT_MEMBER
    assert node.promote("d") is Refusal.NOT_CAUGHT_UP
    node.receive("d", AppendReply(1, True, 3, 0, 0, 0), 1_020)
    assert node.promote("d") == Position(1, 4)
    assert node.membership == Membership(("a", "b", "c", "d"))


def test_a_new_leader_does_not_change_members_yet() -> None:
    node = raft()
    node.tick(300)
    synced(node)
    node.receive("b", VoteReply(1, True, True), 301)
    synced(node)
    node.receive("b", VoteReply(1, True, False), 302)
    assert node.remove("c") is Refusal.NOTHING_COMMITTED
    assert raft().remove("c") is Refusal.NOT_LEADER


def test_the_last_voter_stays() -> None:
    node = raft(founding(Membership(("a",))))
    node.tick(300)
    synced(node)
    assert node.remove("a") is Refusal.LAST_VOTER


def test_a_removed_leader_leads_until_that_is_committed() -> None:
    node = leading()
    node.remove("a")
    synced(node)
    node.receive("b", AppendReply(1, True, 3, 0, 0, 0), 1_010)
    assert node.role is Role.LEADER
    node.receive("c", AppendReply(1, True, 3, 0, 0, 0), 1_010)
    assert node.role is Role.FOLLOWER
    assert any(isinstance(message, TimeoutNow) for _, message in sent(synced(node)))


def test_leadership_goes_over_once_the_successor_has_everything() -> None:
    node = leading()
    node.propose(b"x")
    synced(node)
    assert node.transfer_leader("b") is None
    assert node.propose(b"y") is Refusal.TRANSFERRING
    assert not any(isinstance(message, TimeoutNow) for _, message in sent(synced(node)))
    node.receive("b", AppendReply(1, True, 3, 0, 0, 0), 1_010)
    assert ("b", TimeoutNow(1)) in sent(synced(node))
    assert node.transfer_leader("c") is Refusal.TRANSFERRING


# -- reads


def test_a_read_waits_for_a_majority() -> None:
    node = leading()
    context = node.read_index()
    assert context == (1, 1)
    effects = synced(node)
    assert not any(isinstance(effect, ReadReady) for effect in effects)
    assert {m.round for _, m in sent(effects) if isinstance(m, Append)} == {1}
    node.receive("b", AppendReply(1, True, 2, 1, 0, 0), 1_010)
    assert ReadReady((1, 1), 2) in synced(node)


def test_a_follower_reads_by_its_leaders_word() -> None:
    node = raft()
    assert node.read_index() is Refusal.NO_LEADER
    node.receive("b", append(1, (1, 0), command(1), commit=1), 10)
    synced(node)
    assert node.read_index() == (1, 1)
    synced(node)
    node.receive("b", ReadReply(1, (0, 1), 1), 20)
    assert synced(node) == []
    node.receive("b", ReadReply(1, (1, 1), 2), 20)
    assert synced(node) == []
    node.receive("b", append(1, (2, 1), commit=2), 30)
    assert ReadReady((1, 1), 2) in synced(node)


# -- bounds


def test_too_many_messages_do_not_wait_for_a_disk() -> None:
    node = raft()
    node.receive("b", append(1, (1, 0), command(1)), 10)
    persist = persist_of(node.take_effects())
    for _ in range(HELD_MAX + 50):
        node.receive("b", append(1, (1, 0), command(1)), 10)
    node.persisted(persist.token)
    assert len(sent(node.take_effects())) == HELD_MAX


def test_reads_that_wait_are_bounded() -> None:
    node = leading(reads_waiting=3)
    assert [isinstance(node.read_index(), tuple) for _ in range(3)] == [True] * 3
    assert node.read_index() is Refusal.BUSY
    follower = raft(reads_waiting=2)
    follower.receive("b", append(1, (1, 0)), 10)
    follower.read_index()
    follower.read_index()
    assert follower.read_index() is Refusal.BUSY
    follower.tick(5_000)
    failed = [effect for effect in follower.take_effects() if isinstance(effect, ReadFailed)]
    assert [effect.context for effect in failed] == [(1, 1), (1, 2)]


def test_a_peer_that_does_not_answer_gets_entries_once() -> None:
    node = leading()
    node.propose(bytes(1000))
    synced(node)
    sizes = []
    for now in range(1_060, 1_500, 60):
        node.receive("b", AppendReply(1, True, node.log.last_index, 0, 0, 0), now)
        node.tick(now)
        to_c = [message for to, message in sent(synced(node)) if to == "c"]
        sizes += [len(message.entries) for message in to_c if isinstance(message, Append)]
    assert len(sizes) >= 5
    assert not any(sizes)


@pytest.mark.parametrize(
    "wrong",
    [{"heartbeat_ms": 200}, {"append_entries": 0}, {"chunk_bytes": 0}, {"appends_in_flight": 0}],
)
def test_settings_that_cannot_work(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"must|bound"):
        Settings(**wrong)

"""The parts of a member: frames within bounds, proposals and their sessions, who is there."""

from __future__ import annotations

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.cluster import control_frames as frames
from warren.cluster.founding import cluster_id_of, founded_by
from warren.cluster.member import Member
from warren.cluster.member_applied import AppliedEverywhere
from warren.cluster.member_effects import (
    Change,
    MemberEffect,
    NodesChanged,
    ProposalDone,
    ProposalFailed,
    RestoreDefinitions,
    SendFrame,
    ViewsChanged,
    Why,
)
from warren.cluster.member_liveness import Liveness
from warren.cluster.member_machine import MemberMachine, encode_image
from warren.cluster.member_proposals import Proposals
from warren.cluster.member_settings import MemberSettings
from warren.cluster.metadata import Node
from warren.cluster.metadata_commands import (
    Answer,
    CreateView,
    Define,
    DropView,
    Expand,
    Handover,
    NodeDown,
    NodeUp,
    Register,
    Result,
    decode_result,
    encode_command,
    encode_result,
)
from warren.cluster.raft import codec
from warren.cluster.raft.effects import Persist, Restore
from warren.cluster.raft.messages import InstallSnapshot
from warren.cluster.raft.types import Membership, ProtocolError, Snapshot, Stored
from warren.cluster.sessions import OpenSession, Sessions, encode_proposal

SETTINGS = MemberSettings()
CHANGE = encode_command(Define(b"x"))
DONE = encode_result(Result(Answer.DONE))
TABLE = {"a": Node(1, True), "b": Node(1, True), "c": Node(3, True)}


# -- frames


@given(st.binary(max_size=60))
def test_no_bytes_break_a_decoder(payload: bytes) -> None:
    for kind in (frames.Propose, frames.Applied, frames.Join, frames.JoinRefused):
        try:
            frames.decode(kind, payload)
        except ProtocolError:
            continue


@given(st.integers(0, 31), st.binary(max_size=60))
def test_no_frame_breaks_a_member(kind: int, payload: bytes) -> None:
    member = Member("a", founded_by("abc"), SETTINGS, lambda low, _: low, 1, 0)
    with contextlib.suppress(ValueError):
        member.receive("b", kind, payload, 1)
    member.take_effects()


def test_too_many_proposals_are_no_frame() -> None:
    payload = frames.encode(frames.Propose((b"x",) * (frames.PROPOSE_COUNT_MAX + 1)))
    with pytest.raises(ProtocolError):
        frames.decode(frames.Propose, payload)
    with pytest.raises(ProtocolError):
        frames.decode(frames.Applied, bytes(frames.FRAME_BYTES_MAX + 65))


@given(st.lists(st.integers(0, frames.CHANGE_BYTES_MAX), max_size=6), st.integers(0, 3000))
def test_proposals_are_split_into_frames_within_bounds(sizes: list[int], small: int) -> None:
    proposals = [bytes(size) for size in sizes] + [b"small"] * small + [b"last"]
    payloads = frames.proposals_in_frames(proposals)
    assert all(len(payload) <= frames.FRAME_BYTES_MAX for payload in payloads)
    found = [p for payload in payloads for p in frames.decode(frames.Propose, payload).proposals]
    assert found == proposals


# -- proposals


def machine() -> tuple[Sessions, list[MemberEffect]]:
    effects: list[MemberEffect] = []
    return Sessions(MemberMachine(effects, 0)), effects


def opened(proposals: Proposals, sessions: Sessions, index: int = 1) -> int:
    """The next free index, after the session is open."""
    (data,) = proposals.due(0)
    assert proposals.applied(sessions.apply(index, data)) is None
    assert proposals.session == index
    return index + 1


def test_what_is_sent_again_is_the_same_request() -> None:
    proposals, (sessions, _) = Proposals("1.a", SETTINGS), machine()
    index = opened(proposals, sessions)
    proposals.add(7, CHANGE)
    first = proposals.due(0)
    assert proposals.due(SETTINGS.retry_ms - 1) == []
    assert proposals.due(SETTINGS.retry_ms) == first
    assert proposals.due(SETTINGS.retry_ms * 2) == []
    proposals.all_again()
    assert proposals.due(SETTINGS.retry_ms * 2) == first
    proposal = proposals.applied(sessions.apply(index, first[0]))
    assert proposal is not None
    assert proposal.ticket == 7
    assert proposals.applied(sessions.apply(index + 1, first[0])) is None
    proposals.all_again()
    assert proposals.due(99_999) == []


def test_a_bounded_number_is_on_its_way() -> None:
    proposals, (sessions, _) = Proposals("1.a", MemberSettings(in_flight=2)), machine()
    index = opened(proposals, sessions)
    for ticket in range(5):
        proposals.add(ticket, CHANGE)
    sent = proposals.due(0)
    assert len(sent) == 2
    proposals.applied(sessions.apply(index, sent[1]))
    assert len(proposals.due(0)) == 1


def test_a_dropped_session_is_opened_anew() -> None:
    """What was not applied in the old one is proposed in the new one, in the old order."""
    proposals, (sessions, _) = Proposals("1.a", SETTINGS), machine()
    sessions.sessions_max = 1
    index = opened(proposals, sessions)
    for ticket in (1, 2, 3):
        proposals.add(ticket, CHANGE)
    late = proposals.due(0)
    proposals.applied(sessions.apply(index, late[1]))
    outcome = sessions.apply(index + 1, encode_proposal(OpenSession("somebody else")))
    proposals.applied(outcome)
    proposals.look(sessions)
    assert proposals.session == 0
    assert proposals.applied(sessions.apply(index + 2, late[0])) is None
    index = opened(proposals, sessions, index + 3)
    again = proposals.due(0)
    tickets = [proposals.applied(sessions.apply(index + n, data)) for n, data in enumerate(again)]
    assert [proposal.ticket for proposal in tickets if proposal is not None] == [1, 3]


def test_an_image_tells_what_was_applied_and_what_is_lost() -> None:
    proposals, (sessions, _) = Proposals("1.a", SETTINGS), machine()
    index = opened(proposals, sessions)
    proposals.add(1, CHANGE)
    proposals.add(2, CHANGE)
    data = proposals.due(0)
    sessions.apply(index, data[1])
    applied, lost = proposals.restored(sessions)
    assert [(proposal.ticket, result) for proposal, result in applied] == [(2, DONE)]
    assert not lost
    applied, lost = proposals.restored(machine()[0])
    assert [proposal.ticket for proposal in lost] == [1]
    assert not applied


def test_a_session_is_found_in_an_image() -> None:
    proposals, (sessions, _) = Proposals("1.a", SETTINGS), machine()
    (data,) = proposals.due(0)
    sessions.apply(5, data)
    sessions.apply(6, data)
    restored, _ = machine()
    restored.restore(sessions.image())
    proposals.restored(restored)
    assert proposals.session == 5


def test_a_member_takes_no_more_than_it_may() -> None:
    settings = MemberSettings(waiting=3)
    member = Member("a", founded_by("abc"), settings, lambda low, _: low, 1, 0)
    tickets = [member.propose(b"x") for _ in range(4)]
    member.propose(bytes(frames.CHANGE_BYTES_MAX + 1))
    failed = [e for e in member.take_effects() if isinstance(e, ProposalFailed)]
    assert [effect.why for effect in failed] == [Why.BUSY, Why.TOO_LARGE]
    assert failed[0].ticket == tickets[3]


# -- views


def life_of_a() -> MemberMachine:
    """Node a in its second life; its owner has had the definitions up to entry 4."""
    return MemberMachine([], 4, "a", 2)


BEGINNING = (
    Register("a", 1, False),
    Register("b", 1, False),
    CreateView("7", ("a", "b")),
    NodeDown("a", 1),
    Register("a", 2, False),
    Expand("7", 3, "a"),
    Handover("7", 4, "a"),
    DropView("7", 5),
)


def told(machine: MemberMachine) -> list[tuple[str, int, object]]:
    """What the owner hears, in short."""
    shown: list[tuple[str, int, object]] = []
    for effect in machine.effects:
        if isinstance(effect, ViewsChanged):
            view = effect.views["7"]
            master = None if view is None else view.master
            shown.append(("views", effect.index, (master, effect.registered)))
        elif isinstance(effect, NodesChanged):
            shown.append(("nodes", effect.index, effect.what))
        elif isinstance(effect, RestoreDefinitions):
            shown.append(("definitions", effect.index, effect.image))
    machine.effects.clear()
    return shown


def test_views_are_told_from_the_first_entry_on_and_before_the_nodes() -> None:
    machine = life_of_a()
    for index, command in enumerate(BEGINNING, 1):
        assert decode_result(machine.apply(index, encode_command(command))).answer is Answer.DONE
    assert told(machine) == [
        ("views", 3, ("a", False)),
        ("views", 4, ("b", False)),
        ("views", 5, ("b", True)),
        ("nodes", 5, Change.REGISTERED),
        ("views", 6, ("b", True)),
        ("views", 7, ("a", True)),
        ("views", 8, (None, True)),
    ]


@pytest.mark.parametrize("applied", [4, 9])
def test_an_image_tells_definitions_then_views_then_nodes(applied: int) -> None:
    source = life_of_a()
    for index, command in enumerate(BEGINNING[:5], 1):
        source.apply(index, encode_command(command))
    machine = MemberMachine([], applied, "a", 2)
    machine.restore(source.image())
    machine.restored(8, b"image")
    views = ("views", 8, ("b", True))
    everything = [("definitions", 8, b"image"), views, ("nodes", 8, Change.RESTORED)]
    assert told(machine) == (everything if applied == 4 else [views])


def test_waiting_for_everybody_ends_when_all_that_live_are_as_far() -> None:
    member = Member("a", founded_by("abc"), SETTINGS, lambda low, _: low, 1, 0)
    member.nodes.update({name: Node(1, True) for name in "abc"})
    member.applied_index = 5
    ticket = member.everywhere()

    def hear(name: str, index: int) -> bool:
        payload = frames.encode(frames.Applied(1, index))
        member.receive(name, frames.APPLIED, payload, 1)
        return ProposalDone(ticket, 5) in member.take_effects()

    assert not hear("b", 5)
    assert not hear("c", 4)
    assert hear("c", 5)


# -- who is there, and how far


def test_liveness() -> None:
    liveness = Liveness("a", 1, 2_000, 0)
    table = dict(TABLE)
    assert liveness.verdicts(table, 2_000) == []
    liveness.up("b", 1, 2_000)
    assert liveness.verdicts(table, 2_001) == [("c", NodeDown("c", 3))]
    table["c"] = Node(3, False)
    liveness.up("c", 4, 2_100)
    assert liveness.verdicts(table, 2_200) == []  # Another life of it: it has to register.
    table["c"] = Node(3, True)
    assert liveness.verdicts(table, 2_200) == [("c", NodeDown("c", 3))]
    table["c"] = Node(4, True)
    liveness.refused("b")
    assert liveness.verdicts(table, 2_200) == []  # There is a link all the same.
    liveness.down("b")
    assert liveness.verdicts(table, 2_200) == [("b", NodeDown("b", 1))]
    table["b"] = Node(1, False)
    liveness.up("b", 1, 2_300)
    assert liveness.verdicts(table, 2_300) == [("b", NodeUp("b", 1))]
    table["a"] = Node(1, False)
    table["b"] = Node(1, True)
    assert liveness.verdicts(table, 2_300) == [("a", NodeUp("a", 1))]


def test_own_absence_is_not_the_silence_of_others() -> None:
    liveness = Liveness("a", 1, 2_000, 0)
    liveness.up("b", 1, 100)
    liveness.up("c", 3, 100)
    liveness.held_up(50_000)
    assert liveness.verdicts(TABLE, 51_000) == []
    assert len(liveness.verdicts(TABLE, 52_200)) == 2


def test_applied_everywhere_is_by_incarnation() -> None:
    applied = AppliedEverywhere("a", 1)
    applied.wait(5, 1)
    applied.told("b", 1, 9)
    applied.told("c", 2, 9)  # An earlier life of it.
    assert applied.everywhere(TABLE, 9) == []
    applied.told("c", 3, 4)
    assert applied.everywhere(TABLE, 9) == []
    applied.told("b", 1, 2)  # Late: it was further already.
    applied.told("c", 3, 5)
    assert applied.everywhere(TABLE, 9) == [(5, 1)]
    applied.wait(6, 2)
    assert applied.everywhere({**TABLE, "c": Node(3, False)}, 9) == [(6, 2)]


def test_a_node_that_was_declared_down_waits_until_all_know_that_it_is_back() -> None:
    applied = AppliedEverywhere("a", 1)
    applied.look({**TABLE, "a": Node(1, False)}, 4)
    applied.wait(5, 1)
    for name, node in TABLE.items():
        applied.told(name, node.incarnation, 7)
    assert applied.everywhere(TABLE, 9) == []
    applied.look({**TABLE, "a": Node(1, True)}, 8)
    assert applied.everywhere(TABLE, 9) == []
    for name, node in TABLE.items():
        applied.told(name, node.incarnation, 8)
    assert applied.everywhere(TABLE, 9) == [(5, 1)]


def test_the_id_of_a_cluster_is_its_name_and_founders() -> None:
    assert cluster_id_of("x", "abc") == cluster_id_of("x", "cba")
    assert (
        len({cluster_id_of("x", "abc"), cluster_id_of("y", "abc"), cluster_id_of("x", "ab")}) == 3
    )


def test_one_node_alone_agrees_with_itself() -> None:
    member = Member("a", founded_by("a"), SETTINGS, lambda low, _: low, 1, 0, cluster_id="id")
    ticket = member.propose(b"x")
    seen: list[MemberEffect] = []
    for now_ms in range(0, 2_000, 50):
        member.tick(now_ms)
        while taken := member.take_effects():
            seen += taken
            for effect in taken:
                if isinstance(effect, Persist):
                    member.persisted(effect.token)
    assert [effect.ticket for effect in seen if type(effect).__name__ == "ProposalDone"] == [ticket]
    assert [type(e).__name__ for e in seen].index("ApplyDefinition")
    assert member.ready
    assert member.cluster_id == "id"


def sent_proposals(member: Member) -> list[bytes]:
    return [
        proposal
        for effect in member.take_effects()
        if isinstance(effect, SendFrame) and effect.kind == frames.PROPOSE
        for proposal in frames.decode(frames.Propose, effect.payload).proposals
    ]


def test_a_node_registers_again_when_it_cannot_know_whether_it_has() -> None:
    """It came so late that an image without its session was all there was to get."""
    member = Member("a", founded_by("abc"), SETTINGS, lambda low, _: low, 4, 0)
    member.raft.leader = "b"
    (session,) = sent_proposals(member)
    member._apply_command(2, session)
    (register,) = sent_proposals(member)
    image = encode_image(machine()[0].image(), b"")
    snapshot = Snapshot(9, 1, Membership(("a", "b", "c")), image)
    member._restore(Restore(snapshot))
    (session,) = sent_proposals(member)
    member._apply_command(10, session)
    (again,) = sent_proposals(member)
    assert again != register
    member._apply_command(11, again)
    assert member.nodes == {"a": Node(4, True)}


def test_registering_comes_before_all_that_waits() -> None:
    settings = MemberSettings(waiting=2, in_flight=1)
    member = Member("a", founded_by("abc"), settings, lambda low, _: low, 4, 0)
    for _ in range(3):
        member.propose(b"x")
    member.raft.leader = "b"
    (session,) = sent_proposals(member)
    member._apply_command(2, session)
    (register,) = sent_proposals(member)
    member._apply_command(3, register)
    assert member.nodes == {"a": Node(4, True)}


def test_one_that_joins_anew_asks_on_when_its_leader_is_lost() -> None:
    """What it was sent so far is of the time of an earlier life, when it was a member."""
    member = Member("c", Stored(), SETTINGS, lambda low, _: low, 4, 0, seeds=("a", "b"))
    sessions = Sessions(MemberMachine([], 0))
    image = encode_image(sessions.image(), b"")
    snapshot = InstallSnapshot(
        2, 7, 1, Membership(("a", "b", "c")), len(image), zlib.crc32(image), 0, image
    )
    member.receive("a", frames.RAFT, codec.encode(snapshot), 10)
    member.take_effects()
    assert member.raft.is_voter
    asked = []
    for now_ms in range(20, 10_000, 20):
        member.tick(now_ms)
        asked += [
            effect.to
            for effect in member.take_effects()
            if isinstance(effect, SendFrame) and effect.kind == frames.JOIN
        ]
    assert {"a", "b"} <= set(asked)

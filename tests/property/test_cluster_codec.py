"""Raft messages: what is encoded is decoded, and nothing else is."""

from __future__ import annotations

import contextlib
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warren.cluster.raft import codec, messages
from warren.cluster.raft.codec import MESSAGE_BYTES_MAX, decode, encode
from warren.cluster.raft.effects import Persist
from warren.cluster.raft.messages import Message
from warren.cluster.raft.raft import Raft
from warren.cluster.raft.settings import Settings
from warren.cluster.raft.types import (
    APPEND_ENTRIES_MAX,
    COMMAND_BYTES_MAX,
    NUMBER_MAX,
    Entry,
    EntryKind,
    Membership,
    ProtocolError,
    founding,
    membership_entry,
)

small = st.integers(0, 12)
numbers = st.one_of(small, small, st.integers(0, NUMBER_MAX))
names = st.sampled_from(["a", "b", "c", "d", "warren@host-1"])
memberships = st.sets(names, min_size=1, max_size=5).flatmap(
    lambda chosen: st.integers(1, len(chosen)).map(
        lambda count: Membership(
            tuple(sorted(sorted(chosen)[:count])), tuple(sorted(chosen)[count:])
        )
    )
)
commands = st.builds(Entry, numbers, st.just(EntryKind.COMMAND), st.binary(max_size=20))
entries = st.one_of(
    commands,
    st.builds(Entry, numbers, st.just(EntryKind.NOOP), st.just(b"")),
    st.builds(membership_entry, numbers, memberships),
)
contexts = st.tuples(numbers, numbers)
all_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(messages.VoteRequest, numbers, numbers, numbers, st.booleans(), st.booleans()),
    st.builds(messages.VoteReply, numbers, st.booleans(), st.booleans()),
    st.builds(
        messages.Append,
        numbers,
        numbers,
        numbers,
        numbers,
        numbers,
        st.lists(entries, max_size=4).map(tuple),
    ),
    st.builds(messages.AppendReply, numbers, st.booleans(), numbers, numbers, numbers, numbers),
    st.builds(
        messages.InstallSnapshot,
        numbers,
        numbers,
        numbers,
        memberships,
        st.integers(0, 2**30),
        st.integers(0, 2**32 - 1),
        numbers,
        st.binary(max_size=30),
    ),
    st.builds(messages.SnapshotReply, numbers, numbers, numbers),
    st.builds(messages.TimeoutNow, numbers),
    st.builds(messages.ReadRequest, numbers, contexts),
    st.builds(messages.ReadReply, numbers, contexts, numbers),
)


@given(all_messages)
def test_messages_survive(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    for candidate in (data, bytes((codec.VERSION,)) + data):
        with contextlib.suppress(ProtocolError):
            assert decode(encode(decode(candidate))) == decode(candidate)


@given(all_messages, st.data())
def test_damaged_messages_are_messages_or_refused(message: Message, data: st.DataObject) -> None:
    encoded = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 3))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for candidate in (bytes(encoded), bytes(encoded[:cut]), encode(message) + b"\x00"):
        with contextlib.suppress(ProtocolError):
            decode(candidate)


def _packed(*fields: object) -> bytes:
    return bytes((codec.VERSION,)) + msgspec.msgpack.encode(fields)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x02" + encode(messages.TimeoutNow(1))[1:],
        _packed(7, -1),
        _packed(7, NUMBER_MAX + 1),
        _packed(7, "1"),
        _packed(7, 1, 2),
        _packed(7),
        _packed(99, 1),
        _packed(3, 1, 0, 0, 0, 0, [[1, 9, b""]]),
        _packed(3, 1, 0, 0, 0, 0, [[1, 2, b"no membership"]]),
        _packed(3, 1, 0, 0, 0, 0, [[1, 2, msgspec.msgpack.encode([[], []])]]),
        _packed(3, 1, 0, 0, 0, 0, [[1, 2, msgspec.msgpack.encode([["b", "a"], []])]]),
        _packed(3, 1, 0, 0, 0, 0, [[1, 1, b""]] * (APPEND_ENTRIES_MAX + 1)),
        _packed(3, 1, 0, 0, 0, 0, [[1, 1, bytes(COMMAND_BYTES_MAX + 1)]]),
        _packed(5, 1, 1, 1, [[], []], 1, 0, 0, b"x"),
        _packed(5, 1, 1, 1, [["a"], ["a"]], 1, 0, 0, b"x"),
        _packed(5, 1, 1, 1, [["a"], []], 2**30 + 1, 0, 0, b"x"),
        bytes((codec.VERSION,)) + b"\x93\x03\xdd\xff\xff\xff\xff",
        bytes((codec.VERSION,)) + b"\x92\x07\xc6\xff\xff\xff\xff",
        bytes((codec.VERSION,)) + b"\x91" * 5_000,
        bytes(MESSAGE_BYTES_MAX + 1),
    ],
)
def test_what_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(data)


@given(
    st.lists(st.tuples(st.sampled_from(["b", "c", "z"]), all_messages), max_size=25),
    st.integers(0, 2**32),
)
@settings(max_examples=150, deadline=None)
def test_no_message_breaks_a_node(script: list[tuple[str, Message]], seed: int) -> None:
    """Whatever peers say, a node refuses it or goes on: its log whole, its terms rising."""
    dice = random.Random(seed)
    limits = Settings(snapshot_entries=3, entries_kept=1)
    node = Raft("a", founding(Membership(("a", "b", "c"))), limits, dice.randint, 1, 0)
    now = term = commit = 0
    for sender, message in script:
        now += dice.randint(0, 400)
        node.tick(now)
        with contextlib.suppress(ProtocolError):
            node.receive(sender, message, now)
        if dice.random() < 0.3:
            node.propose(b"x")
            node.read_index()
        for effect in node.take_effects():
            if isinstance(effect, Persist) and dice.random() < 0.8:
                node.persisted(effect.token)
        assert node.term >= term
        assert node.commit_index >= commit
        assert node.applied_index <= node.commit_index <= node.log.last_index
        assert node.log.base_index <= node.log.snapshot.index <= node.log.last_index
        term, commit = node.term, node.commit_index
        if dice.random() < 0.1:
            node.compact(node.applied_index, b"image")

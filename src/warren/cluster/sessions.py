"""Every request once: a proposal that is tried again is applied one time only.

A proposer whose leader dies cannot know whether its proposal was committed, so it proposes again.
It therefore opens a session in the log and numbers its requests; the replicated state remembers,
by session, which numbers were applied and with which result. All nodes decide alike, because they
decide by nothing but the log.
"""

from __future__ import annotations

import enum
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

VERSION = 1
#: The least recently used session goes when there are more.
SESSIONS_MAX = 1024
#: Requests of one session that may be open at a time.
WINDOW = 1024

_Number = Annotated[int, Meta(ge=0, le=2**53)]


class StateMachine(Protocol):
    """What is replicated. The same commands lead to the same state and the same results."""

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one command; errors are results too. It must not raise."""

    def image(self) -> bytes:
        """The whole state."""

    def restore(self, image: bytes) -> None:
        """Replace the whole state."""


class OpenSession(msgspec.Struct, frozen=True, array_like=True, tag=1, forbid_unknown_fields=True):
    """Opens a session, whose number is the index of this very entry.

    `origin` is for the proposer, to know its own.
    """

    origin: Annotated[str, Meta(max_length=255)]


class Request(msgspec.Struct, frozen=True, array_like=True, tag=2, forbid_unknown_fields=True):
    """A numbered command. Requests below `open_from` have been answered and may be forgotten."""

    session: _Number
    sequence: _Number
    open_from: _Number
    command: bytes


class Verdict(enum.Enum):
    """What became of a proposal."""

    OPENED = "opened"
    APPLIED = "applied"
    #: It had been applied before; the result is the one of that time.
    REPEATED = "repeated"
    #: It had been applied and answered before, so nobody waits for the result.
    FORGOTTEN = "forgotten"
    #: The session is not there any more: whether it was ever applied is unknown.
    EXPIRED = "expired"
    MALFORMED = "malformed"


class Outcome(msgspec.Struct, frozen=True):
    """What became of a proposal, and the state machine's answer."""

    verdict: Verdict
    session: int = 0
    sequence: int = 0
    origin: str = ""
    result: bytes = b""


class _Session(msgspec.Struct, array_like=True):
    used_at: int
    open_from: int
    results: dict[int, bytes]
    origin: str


class _Image(msgspec.Struct, array_like=True):
    version: int
    sessions: dict[int, _Session]
    machine: bytes


_proposal_decoder: msgspec.msgpack.Decoder[OpenSession | Request] = msgspec.msgpack.Decoder(
    OpenSession | Request
)
_image_decoder = msgspec.msgpack.Decoder(_Image)


def encode_proposal(proposal: OpenSession | Request) -> bytes:
    """A proposal as the data of an entry."""
    return bytes((VERSION,)) + msgspec.msgpack.encode(proposal)


class Sessions:
    """A state machine behind its sessions."""

    sessions_max = SESSIONS_MAX

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        #: In order of last use, the oldest first.
        self._sessions: dict[int, _Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def apply(self, index: int, data: bytes) -> Outcome:
        """Apply a committed proposal."""
        if not data or data[0] != VERSION:
            return Outcome(Verdict.MALFORMED)
        try:
            proposal = _proposal_decoder.decode(memoryview(data)[1:])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Outcome(Verdict.MALFORMED)
        if isinstance(proposal, OpenSession):
            return self._open(index, proposal)
        return self._request(index, proposal)

    def _open(self, index: int, proposal: OpenSession) -> Outcome:
        self._sessions[index] = _Session(index, 0, {}, proposal.origin)
        if len(self._sessions) > self.sessions_max:
            del self._sessions[next(iter(self._sessions))]
        return Outcome(Verdict.OPENED, index, 0, proposal.origin)

    def _request(self, index: int, request: Request) -> Outcome:
        number, sequence = request.session, request.sequence
        session = self._sessions.pop(number, None)
        if session is None:
            return Outcome(Verdict.EXPIRED, number, sequence)
        self._sessions[number] = session
        session.used_at = index
        if request.open_from > session.open_from:
            _forget_answered(session, request.open_from)
        if sequence < session.open_from:
            return Outcome(Verdict.FORGOTTEN, number, sequence)
        if sequence in session.results:
            return Outcome(Verdict.REPEATED, number, sequence, "", session.results[sequence])
        if sequence >= session.open_from + WINDOW:
            return Outcome(Verdict.MALFORMED, number, sequence)
        result = self.machine.apply(index, request.command)
        session.results[sequence] = result
        return Outcome(Verdict.APPLIED, number, sequence, "", result)

    def holds(self, number: int) -> bool:
        """Whether a session is still there."""
        return number in self._sessions

    def find(self, origin: str) -> int:
        """The first session that was opened under a name and is still there; 0 without one."""
        found = [number for number, session in self._sessions.items() if session.origin == origin]
        return min(found, default=0)

    def result_of(self, number: int, sequence: int) -> bytes | None:
        """What a request of a session that is still there came to; None: it was not applied."""
        session = self._sessions.get(number)
        if session is None:
            return None
        return b"" if sequence < session.open_from else session.results.get(sequence)

    def image(self) -> bytes:
        """The sessions and the state machine; equal states have equal images."""
        return msgspec.msgpack.encode(_Image(VERSION, self._sessions, self.machine.image()))

    def restore(self, image: bytes) -> None:
        """Replace both."""
        loaded = _image_decoder.decode(image)
        if loaded.version != VERSION:
            raise ValueError(f"an image of version {loaded.version}, not {VERSION}")
        self.machine.restore(loaded.machine)
        self._sessions = loaded.sessions


def _forget_answered(session: _Session, open_from: int) -> None:
    """Mostly one or a few have been answered since; a leap is gone through by what is there."""
    results = session.results
    if open_from - session.open_from <= len(results):
        for done in range(session.open_from, open_from):
            results.pop(done, None)
    else:
        session.results = {done: result for done, result in results.items() if done >= open_from}
    session.open_from = open_from

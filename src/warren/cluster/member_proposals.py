"""A member's own proposals: numbered in a session, sent to the leader until seen applied.

Whatever is sent again is the same request of the same session, so it counts once. A session that
the log has dropped is opened anew: what was not applied before that never will be, and is numbered
again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from warren.cluster.sessions import (
    WINDOW,
    OpenSession,
    Outcome,
    Request,
    Sessions,
    Verdict,
    encode_proposal,
)

if TYPE_CHECKING:
    from warren.cluster.member_settings import MemberSettings

_NEVER_MS = 1 << 60


class Proposal:
    """One command on its way."""

    __slots__ = ("command", "data", "ticket", "tried_ms", "wait_ms")

    def __init__(self, ticket: int, command: bytes) -> None:
        self.ticket = ticket
        self.command = command
        #: The request, once it has a number.
        self.data = b""
        self.tried_ms = 0
        self.wait_ms = 0


class Proposals:
    """Those of one life of a node."""

    def __init__(self, name: str, settings: MemberSettings) -> None:
        """`name` is one that no other life of any node has."""
        self.session = 0
        self._name = name
        self._settings = settings
        self._sessions_opened = 1
        self._next_sequence = 1
        self._waiting: deque[Proposal] = deque()
        #: By number, in order.
        self._in_flight: dict[int, Proposal] = {}
        self._open_tried_ms = -_NEVER_MS
        self._retry_at_ms = _NEVER_MS

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    @property
    def is_full(self) -> bool:
        return len(self._waiting) >= self._settings.waiting

    @property
    def origin(self) -> str:
        """The name of the session that is open or to be opened."""
        return f"{self._sessions_opened}.{self._name}"

    def add(self, ticket: int, command: bytes) -> None:
        self._waiting.append(Proposal(ticket, command))

    def add_first(self, ticket: int, command: bytes) -> None:
        """Before all that wait, however many they are."""
        self._waiting.appendleft(Proposal(ticket, command))

    def give_up(self, tickets: set[int]) -> None:
        """Try these no more. What was sent before may still be applied, or never is."""
        self._waiting = deque(it for it in self._waiting if it.ticket not in tickets)
        self._in_flight = {
            number: it for number, it in self._in_flight.items() if it.ticket not in tickets
        }

    # -- going out

    def due(self, now_ms: int) -> list[bytes]:
        """What is to go to the leader now: retries first, then as much as may be on its way."""
        if not self.session:
            if now_ms - self._open_tried_ms < self._settings.retry_ms:
                return []
            self._open_tried_ms = now_ms
            return [encode_proposal(OpenSession(self.origin))]
        due = self._retries(now_ms) if now_ms >= self._retry_at_ms else []
        if self._waiting:
            self._number_waiting(now_ms, due)
        return due

    def all_again(self) -> None:
        """The leader is a new one, or the way to it was broken: nothing is sure to have come."""
        for proposal in self._in_flight.values():
            proposal.tried_ms = -_NEVER_MS
            proposal.wait_ms = 0
        self._retry_at_ms = -_NEVER_MS
        self._open_tried_ms = -_NEVER_MS

    def once(self, command: bytes) -> bytes | None:
        """A request that nobody waits for and that is not tried again; None without a session."""
        if not self.session or self._next_sequence >= self._open_from() + WINDOW:
            return None
        return self._numbered(command)

    def _retries(self, now_ms: int) -> list[bytes]:
        settings = self._settings
        due = []
        earliest = _NEVER_MS
        for proposal in self._in_flight.values():
            if now_ms >= proposal.tried_ms + proposal.wait_ms:
                due.append(proposal.data)
                proposal.tried_ms = now_ms
                wait_ms = min(proposal.wait_ms * 2, settings.retry_max_ms)
                proposal.wait_ms = max(wait_ms, settings.retry_ms)
            earliest = min(earliest, proposal.tried_ms + proposal.wait_ms)
        self._retry_at_ms = earliest
        return due

    def _number_waiting(self, now_ms: int, due: list[bytes]) -> None:
        waiting, in_flight, settings = self._waiting, self._in_flight, self._settings
        retry_ms = settings.retry_ms
        while (
            waiting
            and len(in_flight) < settings.in_flight
            and self._next_sequence < self._open_from() + WINDOW
        ):
            proposal = waiting.popleft()
            sequence = self._next_sequence
            in_flight[sequence] = proposal
            proposal.data = self._numbered(proposal.command)
            proposal.tried_ms = now_ms
            proposal.wait_ms = retry_ms
            due.append(proposal.data)
        self._retry_at_ms = min(self._retry_at_ms, now_ms + retry_ms)

    def _open_from(self) -> int:
        return next(iter(self._in_flight), self._next_sequence)

    def _numbered(self, command: bytes) -> bytes:
        sequence, open_from = self._next_sequence, self._open_from()
        self._next_sequence += 1
        return encode_proposal(Request(self.session, sequence, open_from, command))

    # -- coming back

    def applied(self, outcome: Outcome) -> Proposal | None:
        """An entry was applied; the proposal of ours that it was, the first time it is seen."""
        if outcome.session == self.session and self.session:
            if outcome.verdict is Verdict.EXPIRED:
                self._renew()
                return None
            return self._in_flight.pop(outcome.sequence, None)
        is_ours = outcome.verdict is Verdict.OPENED and outcome.origin == self.origin
        if is_ours and not self.session:
            self.session = outcome.session
        return None

    def look(self, sessions: Sessions) -> None:
        """Another session was opened: is this one still there?"""
        if self.session and not sessions.holds(self.session):
            self._renew()

    def restored(self, sessions: Sessions) -> tuple[list[tuple[Proposal, bytes]], list[Proposal]]:
        """The state was replaced; what came of proposals by then, and which may be in it or not."""
        if not self.session:
            self.session = sessions.find(self.origin)
            return [], []
        if not sessions.holds(self.session):
            lost = list(self._in_flight.values())
            self._in_flight.clear()
            self._renew()
            return [], lost
        found = {number: sessions.result_of(self.session, number) for number in self._in_flight}
        return [
            (self._in_flight.pop(number), result)
            for number, result in found.items()
            if result is not None
        ], []

    def _renew(self) -> None:
        """What was not applied in the old session waits again, in front of the others."""
        self._waiting.extendleft(reversed(self._in_flight.values()))
        self._in_flight.clear()
        self.session = 0
        self._sessions_opened += 1
        self._next_sequence = 1
        self._open_tried_ms = -_NEVER_MS
        self._retry_at_ms = _NEVER_MS

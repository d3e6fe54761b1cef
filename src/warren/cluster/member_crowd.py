"""What a leader is given to propose: each request once, however often it is sent.

Who proposes tries again until it has seen the outcome. Sessions would sort out what is in the log
twice, but where the log is slow there would soon be nothing else in it: every try makes it slower
and brings more of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.cluster.raft.effects import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from warren.cluster.raft.effects import Position

#: Proposals that wait at the leader while its log takes none.
CROWD_MAX = 4_096
#: How many that were applied are remembered, for tries that were under way, and how long ones.
LATELY_MAX = 1_024
LATELY_BYTES_MAX = 1_024
_LATER = (Refusal.BUSY, Refusal.TRANSFERRING)


class Crowd:
    """In the order they came."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, None] = {}
        #: What the leader has put into its log and not applied yet.
        self._in_log: set[bytes] = set()
        self._lately: dict[bytes, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, proposals: Iterable[bytes]) -> None:
        for proposal in proposals:
            if proposal not in self._in_log and proposal not in self._lately:
                self._waiting[proposal] = None

    def put_into_log(self, propose: Callable[[bytes], Position | Refusal]) -> None:
        """As much as it takes; more when some is committed."""
        while self._waiting:
            proposal = next(iter(self._waiting))
            outcome = propose(proposal)
            if outcome in _LATER:
                while len(self._waiting) > CROWD_MAX:
                    self._waiting.popitem()  # Tried again by who sent it.
                return
            if outcome is Refusal.NOT_LEADER:
                self._waiting.clear()
                return
            if not isinstance(outcome, Refusal):
                self._in_log.add(proposal)
            del self._waiting[proposal]

    def applied(self, proposal: bytes, is_final: bool) -> None:
        """It was applied, whoever has led it; is it final, to try it again is of no use."""
        self._in_log.discard(proposal)
        if is_final and len(proposal) <= LATELY_BYTES_MAX:
            self._lately[proposal] = None
            if len(self._lately) > LATELY_MAX:
                del self._lately[next(iter(self._lately))]

    def leads_no_more(self) -> None:
        """What is in the log may be taken out of it again."""
        self._in_log.clear()
        self._waiting.clear()

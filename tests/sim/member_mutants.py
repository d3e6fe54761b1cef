"""Members with one rule switched off each, as `mutants.py` has them for Raft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warren.cluster.member import Member
from warren.cluster.member_applied import AppliedEverywhere
from warren.cluster.member_proposals import Proposals
from warren.cluster.member_readiness import Readiness
from warren.cluster.metadata import Node


class _KnowsItselfOnly(AppliedEverywhere):
    def floor(self, table: Mapping[str, Node], own_index: int) -> int:
        return own_index


class DoneTooEarly(Member):
    """A proposal is done as soon as it is applied on the node that proposed it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._applied = _KnowsItselfOnly(self.node, self.incarnation)


class _NeverBack(AppliedEverywhere):
    def look(self, table: Mapping[str, Node], index: int, is_leap: bool = False) -> None:
        pass


class TellsBeforeItIsBack(Member):
    """What was asked of a node that had counted as down is told before all know that it is back."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._applied = _NeverBack(self.node, self.incarnation)


class _NumbersAnew(Proposals):
    def _retries(self, now_ms: int) -> list[bytes]:
        again = list(self._in_flight.values())
        due = super()._retries(now_ms)
        if due:
            self._in_flight.clear()
            due = []
            for proposal in again:
                self._in_flight[self._next_sequence] = proposal
                proposal.data = self._numbered(proposal.command)
                due.append(proposal.data)
        return due


class ProposesTwice(Member):
    """What is tried again is another request, so it is applied again."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._proposals = _NumbersAnew(f"{self.incarnation}.{self.node}", self.settings)


class _NeverDoubts(Readiness):
    def doubt(self) -> None:
        if not self.is_checked:
            super().doubt()


class WakesUpReady(Member):
    """A node that was suspended goes on serving without asking what it has missed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._readiness = _NeverDoubts(self.settings)


class ServesTheOldEra(Member):
    """A node serves clients before it is known whether one of those that had it all still runs."""

    @property
    def ready(self) -> bool:
        return self._readiness.is_checked and self._machine.counts_as_alive

"""The product with one rule left out: what the simulator of brokers must find.

Rules of the core are switched off as in `ring_mutants`, here under the product's own queue, store
and links. The others are rules of those who join it to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from sim import ring_mutants
from warren.engine import agreed, mirror, mirrors
from warren.engine.mirror_log import MirrorLog


class NeverFlags(MirrorLog):
    """Who is promoted does not flag what may have been delivered."""

    def view_operation(self, epoch: int, promoted: bool) -> bytes:
        return super().view_operation(epoch, False)


class ForgetsWhoWaits(MirrorLog):
    """Publishes that a master has not answered are gone with its office."""

    def take_unanswered(self) -> list[Any]:
        super().take_unanswered()
        return []


class TakesTwice(MirrorLog):
    """What is sent again after a failover counts as new."""

    def has_taken(self, _gateway: int, _sequence: int, _message: Any) -> bool:
        return False


class HandsOverInSilence(MirrorLog):
    """The next master is told that nothing is with consumers."""

    def operate(self, kind: int, data: bytes) -> int:
        return super().operate(kind, b"")


@contextmanager
def _log(log_class: type[MirrorLog]) -> Iterator[None]:
    with mock.patch.object(mirrors, "MirrorLog", log_class):
        yield


@contextmanager
def _core(replica_class: type[Any]) -> Iterator[None]:
    with mock.patch.object(mirror, "Replica", replica_class):
        yield


@contextmanager
def _stays_behind() -> Iterator[None]:
    """Entries that change no definition do not count for those who wait for them."""
    with mock.patch.object(agreed.AgreedKeeper, "reach", return_value=None):
        yield


#: name -> how the product is made to be so
MUTANTS: dict[str, Any] = {
    **{
        each.__name__: (_log, each)
        for each in (NeverFlags, ForgetsWhoWaits, TakesTwice, HandsOverInSilence)
    },
    **{
        each.__name__: (_core, each)
        for each in (
            ring_mutants.RestartsInsideAnEpoch,
            ring_mutants.DoesNotWaitForToken,
            ring_mutants.NeverTruncates,
            ring_mutants.ServesAtOnce,
        )
    },
    "StaysBehind": (_stays_behind,),
}


@contextmanager
def mutant(name: str) -> Iterator[None]:
    """The product is that mutant, for a while."""
    how, *arguments = MUTANTS[name]
    with how(*arguments):
        yield

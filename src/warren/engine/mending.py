"""The definitions of a node whose log was damaged, from the agreement's own log.

A record that cannot be read may have been the one that declared a queue. Later records say that the
definitions go further than that, so the agreement would never bring it again. Here everything that
was agreed on up to there is done once more, in an engine that serves nobody and keeps nothing; then
the node's definitions are made the same, and what is there already stays with its messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from logging import Logger
from typing import Any

from warren.auth.directory import Directory
from warren.cluster.member_effects import NodesChanged, ViewsChanged
from warren.engine.agreed import AgreedKeeper
from warren.engine.engine import Engine
from warren.engine.remote_queue import RemoteAmqpQueue
from warren.gateway.gateway import Gateway
from warren.model.errand import Errand


class _Nobody:
    """The other nodes, as the engine sees them: their queues have names and no more."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def living_nodes(self) -> Sequence[str]:
        return ()

    def linked_nodes(self) -> Sequence[str]:
        return self.living_nodes()

    def make_remote(self, *arguments: Any) -> Any:
        home: str = arguments[-1]
        return RemoteAmqpQueue(Gateway(self._engine.turn, self._engine.effects, home), *arguments)

    def queue_moved(self, _queue: Any, _home_before: str) -> None:
        """Nothing waits for it."""

    def queue_deleted(self, _queue: Any) -> None:
        """Nor for one that is gone."""

    def request(self, _home: str, _verb: str, _arguments: tuple[Any, ...]) -> Errand:
        return Errand()

    def pick(self, _count: int) -> int:
        return 0


class Mending:
    """All that was agreed on, until it is as far as the node's own definitions are."""

    def __init__(self, engine: Engine, keeper: AgreedKeeper, log: Logger) -> None:
        self._own = keeper
        self._log = log
        self._shadow = Engine(engine.settings, Directory(), engine.clock, engine.dice, log)
        nobody: Any = _Nobody(self._shadow)
        self._shadow.cluster = nobody
        self._keeper = AgreedKeeper(self._shadow, _forget, _propose_nothing, log)
        self._keeper.attach()

    def apply(self, entries: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Changes that were agreed on; those that the node's own definitions never had."""
        until = self._own.applied
        self._keeper.apply_agreed([entry for entry in entries if entry[0] <= until])
        return [entry for entry in entries if entry[0] > until]

    def restore(self, index: int, image: bytes) -> bool:
        """All definitions as of an entry; False: of one that the node never had."""
        if index > self._own.applied:
            return False
        self._keeper.take_over(index, image)
        return True

    def nodes_changed(self, change: NodesChanged) -> bool:
        """A node came or went; False: later than all that the node ever had."""
        if change.index > self._own.applied:
            return False
        self._keeper.nodes_changed(change)
        return True

    def views_changed(self, change: ViewsChanged) -> None:
        """A master that lets an unused queue go says in which epoch of its view that holds."""
        for key, view in change.views.items():
            if not key.isdecimal():
                continue
            if view is None:
                self._shadow.views.pop(int(key), None)
            else:
                self._shadow.views[int(key)] = view

    def snapshot(self) -> bytes:
        """All definitions, as far as the agreement has brought them again."""
        return self._keeper.snapshot()

    def finish(self) -> None:
        """The node's own definitions are what was agreed on."""
        added, dropped = self._own.mend(self._keeper.snapshot())
        self._log.warning(
            "the log was damaged: %d definitions were missing and %d should have been gone",
            added,
            dropped,
        )


def _forget(_record: bytes) -> None:
    """Nothing is kept."""


def _propose_nothing(_change: bytes) -> Errand:
    return Errand()

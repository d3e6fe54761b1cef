"""Raft's disk beside the loop: one save at a time in a thread, all that gathered in each."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from warren.cluster.raft_storage import RaftStorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from warren.cluster.raft.effects import Persist
    from warren.cluster.raft.types import Stored
    from warren.cluster.raft_storage import RaftStorage


class MemoryRaftStorage:
    """For a node that keeps nothing: it must never start again under its name."""

    def load(self) -> Stored | None:
        return None

    def create(self, stored: Stored) -> None:
        pass

    def save(self, persists: Sequence[Persist]) -> None:
        pass

    def close(self) -> None:
        pass


class RaftDisk:
    """`write` what Raft wants written; `on_saved` gets the last token that is synced."""

    def __init__(
        self,
        storage: RaftStorage,
        on_saved: Callable[[int], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._storage = storage
        self._on_saved = on_saved
        self._on_failed = on_failed
        self._pending: list[Persist] = []
        self._save: asyncio.Future[None] | None = None
        self._has_failed = False
        self._thread = ThreadPoolExecutor(1, "raft-disk")

    def write(self, persist: Persist) -> None:
        """Goes out with the others of its turn, and those that come while a save is under way."""
        self._pending.append(persist)

    def begin(self) -> None:
        """The turn is over: save what has gathered, unless a save is under way."""
        if not self._pending or self._save is not None or self._has_failed:
            return
        persists, self._pending = self._pending, []
        loop = asyncio.get_running_loop()
        self._save = loop.run_in_executor(self._thread, self._storage.save, persists)
        token = persists[-1].token
        self._save.add_done_callback(lambda save: self._saved(save, token))

    def _saved(self, save: asyncio.Future[None], token: int) -> None:
        self._save = None
        error = save.exception() if not save.cancelled() else RaftStorageError("cancelled")
        if error is not None:
            # Nothing is known of the disk any more: whatever was not synced must not be told.
            self._has_failed = True
            self._on_failed(error)
            return
        self._on_saved(token)
        self.begin()

    async def close(self) -> None:
        """Wait for the save that is under way, and let go of the files."""
        while self._save is not None:
            await asyncio.wait([self._save])
            await asyncio.sleep(0)
        self._thread.shutdown()
        self._storage.close()

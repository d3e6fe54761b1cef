"""`warren serve` with a log that is never at rest, so that kills meet what is otherwise rare.

Segments of 256 KiB, a checkpoint after as much, compaction as soon as half a segment is of no use,
and so little memory for messages that most of a backlog is paged out.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from warren.engine.engine import Engine
from warren.node import node, store
from warren.node.cli import main
from warren.node.store import NodeStore
from warren.store.upkeep import UpkeepSettings
from warren.store.writer import LogWriter

SEGMENT_BYTES = 256 * 1024
BUDGET_BYTES = 1024 * 1024
UPKEEP = UpkeepSettings(
    checkpoint_bytes=SEGMENT_BYTES,
    patience_ticks=3,
    compact_below=0.5,
    waste_bytes=SEGMENT_BYTES,
)


class RestlessStore(NodeStore):
    """A node's store with these settings instead of those it is given."""

    def __init__(self, path: Path, engine: Engine, _budget_bytes: int, **more: Any) -> None:
        super().__init__(path, engine, BUDGET_BYTES, UPKEEP, **more)


if __name__ == "__main__":
    small = partial(LogWriter, segment_bytes=SEGMENT_BYTES)
    for module, name, value in (
        (store, "TICK_S", 0.004),
        (store, "LogWriter", small),
        (node, "NodeStore", RestlessStore),
    ):
        assert hasattr(module, name)
        setattr(module, name, value)
    main()

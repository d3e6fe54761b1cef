from collections.abc import Callable
from typing import Any

from warren.store.journal import Journal
from warren.store.scanner import Record

class Replay:
    gaps: dict[Any, tuple[int, int]]
    last_seen: dict[int, int]
    faults: list[tuple[int, str]]
    orphans: int
    records: int
    def __init__(self, journal: Journal, on_metadata: Callable[[bytes], None]) -> None: ...
    def take(self, records: list[Record], segment: int) -> None: ...

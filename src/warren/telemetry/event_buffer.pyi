from collections.abc import Callable
from typing import Any

from warren.model.ports import TurnClock

EVENTS: tuple[str, ...]
NUMBERS: dict[str, int]
MAGIC: bytes
HEAD_SIZE: int
ROW_SIZE: int

def bytes_for(capacity: int) -> int: ...

class EventBuffer:
    capacity: int
    length: int
    noted: int
    def __init__(
        self,
        turn: TurnClock,
        journal: Any,
        on_full: Callable[[], None],
        name_queue: Callable[[Any], int],
    ) -> None: ...
    def use(self, memory: Any, capacity: int, wall_offset_us: int) -> None: ...
    def close_turn(self) -> None: ...
    def logged(self) -> None: ...
    def record(
        self,
        queue: int,
        epoch: int,
        event: int,
        slot: int = 0,
        count: int = 1,
        size: int = 0,
        in_sync: bool = False,
    ) -> None: ...
    def returned(self, number: int, size: int) -> None: ...

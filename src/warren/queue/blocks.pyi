from typing import Any

from warren.queue.cursors import Cursor
from warren.queue.kept import KeptBacklog
from warren.wire.columns import Block

class BlockBuilder:
    first: int
    next: int
    rows: int
    size: int
    missing: int
    def __init__(
        self,
        first: int,
        cursor: Cursor | None,
        times: list[tuple[int, int]],
        with_body: bool = True,
        with_headers: bool = True,
        mends: bool = True,
    ) -> None: ...
    def expect(self, queue: KeptBacklog, rows: int, size: int) -> None: ...
    def fill(self, queue: KeptBacklog, end: int, rows: int, size: int) -> None: ...
    def finish(self, **facts: Any) -> Block: ...

def shown(value: object) -> str: ...

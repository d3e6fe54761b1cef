from collections.abc import Callable

from warren.model.ports import FrameSink

RING_WHOLE: int
RING_PIECE: int

class RingSink(FrameSink):
    def __init__(self, peer: str, take: Callable[[str, bytes], None]) -> None: ...

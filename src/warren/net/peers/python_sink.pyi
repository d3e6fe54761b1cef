from collections.abc import Callable

from warren.model.ports import FrameSink

class PythonSink(FrameSink):
    frames: int
    payload_bytes: int
    turns: int
    is_lost: bool
    def __init__(
        self,
        take: Callable[[int, bytes], None] | None = None,
        lost: Callable[[], None] | None = None,
    ) -> None: ...

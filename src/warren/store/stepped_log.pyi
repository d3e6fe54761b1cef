from warren.store.appender import Appender
from warren.store.files import WritableFiles

class SteppedLog(Appender):
    disk: WritableFiles
    def __init__(
        self,
        disk: WritableFiles,
        next_sequence: int = 1,
        segment_bytes: int = 67108864,
        last_segment: int = 0,
        salt: int = 0,
    ) -> None: ...
    def step(self) -> None: ...
    def fail(self, error: int) -> None: ...
    def close(self) -> None: ...

from warren.store.appender import Appender

class LogWriter(Appender):
    directory: str
    event_fd: int
    free_bytes: int
    def __init__(
        self,
        directory: str,
        next_sequence: int = 1,
        segment_bytes: int = 67108864,
        last_segment: int = 0,
        salt: int = 0,
    ) -> None: ...
    def close(self) -> None: ...

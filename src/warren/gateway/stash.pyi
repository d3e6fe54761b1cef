from collections.abc import Callable
from typing import Protocol

from warren.model.message import Message
from warren.model.ports import PublisherPort

class StashFile(Protocol):
    """Chunks on the disk, first in, first out; gone with the process, or when it is closed."""

    def append(self, chunk: bytes) -> None:
        """Write one behind the others; nothing of it is there after an OSError."""

    def take(self) -> bytes:
        """The oldest."""

    def close(self) -> None:
        """Give the room back."""

class StashRoom:
    limit: int
    used: int
    window: int
    def __init__(
        self, open_file: Callable[[], StashFile], limit: int, window: int = ..., chunk: int = ...
    ) -> None: ...

class Stash:
    count: int
    failing: bool
    full: bool
    memory_bytes: int
    def __init__(self, room: StashRoom) -> None: ...
    def try_again(self) -> None: ...
    def add(
        self,
        message: Message,
        number: int,
        publisher: PublisherPort | None = None,
        tag: int = 0,
        order: int = 0,
    ) -> bool: ...
    def pop(self) -> tuple[Message, list[int], PublisherPort | None, int, int]: ...

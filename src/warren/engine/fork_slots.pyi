from typing import Any

from warren.model.message import Message
from warren.queue.queue import Queue
from warren.store.journal import Journal

DIGEST_BYTES: int
GONE: int
BUSY: int

def digest_of(message: Message) -> bytes: ...
def copy_some(
    source: Queue,
    fork: Queue,
    journal: Journal,
    level: int,
    position: int,
    end: int,
    limit: int,
    rows: bytearray,
) -> int: ...
def level_ends(source: Queue) -> list[tuple[int, int, int]]: ...
def flag_all(fork: Queue) -> None: ...
def mark_far(fork: Queue) -> None: ...
def message_at(queue: Queue, slot: int) -> Message | None: ...
def expires_at(queue: Queue, slot: int) -> int: ...
def bring_in(
    queue: Queue, message: Message, now_ms: int, gateway: int, sequence: int
) -> bool | None: ...
def let_leave(queue: Queue, slot: int, digest: bytes, withdraw: Any) -> int: ...

from typing import Any

from warren.model.message import Message
from warren.model.ports import JournalPort

def offer_all(
    messages: list[Message],
    targets: list[tuple[Any, ...]],
    journal: JournalPort | None,
    now_ms: int,
) -> int: ...
def copy_of(message: Message) -> Message: ...

from collections.abc import Callable
from typing import Any

from warren.model.message import Message
from warren.model.ports import PublisherPort, TurnClock

TAKEN: int
REFUSED: int

class BurialAnswers(PublisherPort):
    def __init__(self, turn: TurnClock, on_answers: Callable[[], None]) -> None: ...
    def offer(self, queue: Any, message: Message, now_ms: int) -> int: ...
    def take(self) -> list[tuple[int, bool]]: ...

from collections.abc import Callable
from typing import Any

from warren.model.message import Message
from warren.model.ports import QueueEffects

REASONS: tuple[str, ...]

class Effects(QueueEffects):
    on_relieved: Callable[[Any], None] | None
    on_queue: Callable[[Any], None] | None
    on_postponed: Callable[[Any], None] | None
    def take_dead_letters(self) -> list[tuple[Any, Message, int, int]]: ...
    def take_expiries(self) -> list[tuple[Any, int]]: ...

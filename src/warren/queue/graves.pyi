from typing import Literal

from warren.model.message import Message
from warren.queue.kept import KeptBacklog

class Graves(KeptBacklog):
    dead_letters: bool
    dropped: int
    buried: int
    burial_term: int
    crowded: bool
    resting: bool
    def dead_message(self, slot: int) -> Message | Literal[False] | None: ...
    def end_burial(
        self,
        slot: int,
        reason: int,
        term: int,
        with_letter: bool = False,
        has_letter: bool = True,
    ) -> None: ...

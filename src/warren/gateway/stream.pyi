from collections.abc import Iterable

from warren.gateway.stash import StashRoom
from warren.model.ports import FrameSink, PeerPort, QueueEffects, TurnClock

class Stream(FrameSink):
    port: PeerPort | None
    session: int
    gone: bool
    room: StashRoom | None
    stashed_count: int
    def __init__(self, turn: TurnClock, effects: QueueEffects) -> None: ...
    def use_stash(self, room: StashRoom) -> None: ...
    def give_back_slots(self, session: int, queue: int, slots: Iterable[int]) -> None: ...
    def give_up_number(self, number: int) -> None: ...

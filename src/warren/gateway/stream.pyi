from warren.model.ports import FrameSink, PeerPort, QueueEffects, TurnClock

class Stream(FrameSink):
    port: PeerPort | None
    session: int
    gone: bool
    def __init__(self, turn: TurnClock, effects: QueueEffects) -> None: ...

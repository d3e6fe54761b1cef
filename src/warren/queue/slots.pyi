from warren.model.ports import JournalPort

class SlotLog:
    next_position: int
    ready: int
    live: int
    ready_bytes: int
    live_bytes: int

    def __init__(self, journal: JournalPort | None = None, durable: bool = False) -> None: ...

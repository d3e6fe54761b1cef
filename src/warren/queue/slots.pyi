class SlotLog:
    next_position: int
    ready: int
    live: int
    ready_bytes: int
    live_bytes: int

from warren.model.message import Message

class Operation:
    index: int
    epoch: int
    kind: int
    slot: int
    wall_ms: int
    flags: int
    gateway: int
    sequence: int
    message: Message | None
    place: int
    body_len: int
    data: bytes

def split_batch(data: bytes, skip: int, bytes_max: int) -> tuple[int, int, int]: ...

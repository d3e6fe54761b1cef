class Record:
    sequence: int
    kind: int
    payload: bytes
    flags: int
    queue_id: int
    epoch: int
    place: int
    offset: int
    def __init__(
        self,
        sequence: int,
        kind: int,
        payload: bytes,
        flags: int = 0,
        queue_id: int = 0,
        epoch: int = 0,
        place: int = 0,
    ) -> None: ...
    def contents(self) -> tuple[int, bytes, int, int, int]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

def read_records(
    segment: bytes, at: int, expected: int, count_max: int, salt: int = 0
) -> tuple[list[Record], int]: ...
def zeros_from(segment: bytes, at: int) -> bool: ...
def find_record(
    segment: bytes, at: int, lowest: int, highest: int, salt: int = 0
) -> tuple[int, int] | None: ...
def proves_synced(segment: bytes, at: int, sequence: int, highest: int, salt: int = 0) -> bool: ...

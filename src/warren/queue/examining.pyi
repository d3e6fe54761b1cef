from warren.queue.replica import Replicated

class Stretch:
    place: int
    @property
    def size(self) -> int: ...

def stretches(
    queue: Replicated, slot: int, below: int, bytes_max: int
) -> tuple[list[Stretch], int | None]: ...
def examine(queue: Replicated, stretch: Stretch, data: bytes) -> dict[int, int]: ...

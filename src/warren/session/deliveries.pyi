from typing import Any

class Deliveries:
    live: int
    last_tag: int
    def outstanding(self) -> list[tuple[int, Any, Any, int]]: ...
    def __len__(self) -> int: ...

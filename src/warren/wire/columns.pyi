from typing import Any

class Column:
    name: str
    kind: str
    def __init__(self, name: str, kind: str) -> None: ...
    def buffers(self) -> list[bytes | None]: ...

def join_block(
    columns: list[tuple[str, str, list[bytes | None]]], rows: int, facts: dict[str, Any]
) -> bytes: ...

"""Types of the compiled method codec."""

from typing import Any

from warren.wire.spec import Method

def decode_method(payload: bytes) -> tuple[Method, tuple[Any, ...]]: ...
def encode_method(method: Method, *args: object) -> bytes: ...

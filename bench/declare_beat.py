"""A client that declares one queue after the other."""

from typing import Any

from bench.beat import Beat


class DeclareBeat(Beat):
    """Durable queues with numbers in their names."""

    noun = "declare"

    def __init__(self, port: int, prefix: str) -> None:
        super().__init__(port)
        self._prefix = prefix

    def prepare(self, channel: Any) -> None:
        """Nothing."""

    def ask(self, channel: Any, number: int) -> None:
        """Declares the next."""
        channel.queue_declare(f"{self._prefix}-{number}", durable=True)

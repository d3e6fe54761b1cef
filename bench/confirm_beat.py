"""A client that publishes one persistent message after the other, and waits for each confirm."""

from typing import Any

import pika

from bench.beat import Beat

BODY = b"x" * 200
PERSISTENT = pika.BasicProperties(delivery_mode=2)


class ConfirmBeat(Beat):
    """To one queue, through one node."""

    noun = "confirm"

    def __init__(self, port: int, queue: str) -> None:
        super().__init__(port)
        self._queue = queue

    def prepare(self, channel: Any) -> None:
        """Turns confirms on; a nack ends the channel here, and is counted."""
        channel.confirm_delivery()

    def ask(self, channel: Any, number: int) -> None:
        """Publishes the next."""
        channel.basic_publish("", self._queue, b"%d" % number + BODY, PERSISTENT)

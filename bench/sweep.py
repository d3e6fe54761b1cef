"""A client that publishes one persistent message to each of many queues at once.

A queue serves when it has confirmed one. What is refused is sent again until it is taken.
"""

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import pika

from bench.brokers import BrokerError
from bench.confirm_beat import BODY, PERSISTENT

READY_S = 30.0
AGAIN_S = 0.01


class Sweep:
    """Connected inside `with`, through one node."""

    def __init__(self, port: int, queues: Sequence[str]) -> None:
        self._parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._queues = queues
        self._connection: Any = None
        self._channel: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._is_ready, self._is_done = threading.Event(), threading.Event()
        self._sent = 0
        self._queue_of: dict[int, str] = {}
        self._left: set[str] = set()
        self._done_at = 0.0
        #: Why the connection ended by itself.
        self.closed = ""
        self.refused = 0

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._is_ready.wait(READY_S) or self.closed:
            raise BrokerError(f"no connection to publish through {self.closed}".strip())
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if not self.closed:
            self._connection.ioloop.add_callback_threadsafe(self._connection.ioloop.stop)
        self._thread.join(READY_S)

    def publish(self) -> None:
        """Sends one to each queue, and returns at once."""
        self._left = set(self._queues)
        self._is_done.clear()
        self._connection.ioloop.add_callback_threadsafe(self._publish_all)

    def await_all(self, limit_s: float) -> float:
        """When the last of them was confirmed, on the monotonic clock.

        Raises:
            BrokerError: some were not in time, or the connection was lost.
        """
        if not self._is_done.wait(limit_s) or self.closed:
            count = f"{len(self._left)} of {len(self._queues)} queues"
            raise BrokerError(f"{count} took nothing within {limit_s:g} s {self.closed}".strip())
        return self._done_at

    # -- on the thread of the connection -----------------------------------------------------------

    def _run(self) -> None:
        self._connection = pika.SelectConnection(
            self._parameters,
            on_open_callback=lambda opened: opened.channel(on_open_callback=self._on_channel),
            on_open_error_callback=self._on_closed,
            on_close_callback=self._on_closed,
        )
        self._connection.ioloop.start()

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._on_closed)
        channel.confirm_delivery(self._on_answer, callback=lambda _: self._is_ready.set())

    def _on_closed(self, _who: Any, reason: Any) -> None:
        self.closed = f"({reason})"
        self._is_ready.set()
        self._is_done.set()
        self._connection.ioloop.stop()

    def _publish_all(self) -> None:
        for queue in self._queues:
            self._publish_one(queue)

    def _publish_one(self, queue: str) -> None:
        self._sent += 1
        self._queue_of[self._sent] = queue
        self._channel.basic_publish("", queue, BODY, PERSISTENT)

    def _on_answer(self, frame: Any) -> None:
        answer = frame.method
        first = answer.delivery_tag
        if answer.multiple:
            first = min(self._queue_of, default=first)
        for tag in range(first, answer.delivery_tag + 1):
            queue = self._queue_of.pop(tag, None)
            if queue is not None:
                self._settle(queue, isinstance(answer, pika.spec.Basic.Ack))

    def _settle(self, queue: str, is_taken: bool) -> None:
        if not is_taken:
            self.refused += 1
            self._connection.ioloop.call_later(AGAIN_S, lambda: self._publish_one(queue))
            return
        self._left.discard(queue)
        if not self._left:
            self._done_at = time.monotonic()
            self._is_done.set()

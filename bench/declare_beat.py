"""A client that declares one queue after the other, and notes when each was asked for and done."""

import threading
import time
from collections.abc import Iterator
from itertools import count
from types import TracebackType
from typing import Any, Self

import pika
from pika.exceptions import AMQPError

from bench.brokers import BrokerError

#: Between two declares: a steady question, no load.
PAUSE_S = 0.005
RETRY_S = 0.01
POLL_S = 0.001


class DeclareBeat:
    """Runs inside `with`; a connection that is lost is made anew, and counted."""

    def __init__(self, port: int, prefix: str) -> None:
        self._parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._prefix = prefix
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: When each declare that succeeded was sent and answered, on the monotonic clock.
        self.done: list[tuple[float, float]] = []
        #: Declares that ended with their channel or connection.
        self.failed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        serial = count(1)
        while not self._is_over.is_set():
            try:
                with pika.BlockingConnection(self._parameters) as connection:
                    self._declare(connection.channel(), serial)
            except (AMQPError, OSError):
                self.failed += 1
                time.sleep(RETRY_S)

    def _declare(self, channel: Any, serial: Iterator[int]) -> None:
        while not self._is_over.wait(PAUSE_S):
            sent = time.monotonic()
            channel.queue_declare(f"{self._prefix}-{next(serial)}", durable=True)
            self.done.append((sent, time.monotonic()))

    def await_declares(self, number: int, limit_s: float) -> None:
        """Until so many have succeeded.

        Raises:
            BrokerError: they have not in time.
        """
        deadline = time.monotonic() + limit_s
        while len(self.done) < number:
            if time.monotonic() > deadline:
                raise BrokerError(f"{len(self.done)} of {number} declares within {limit_s:g} s")
            time.sleep(POLL_S)

    def await_one_since(self, moment: float, limit_s: float) -> float:
        """Seconds from a moment until the first declare is done that was sent after it.

        Raises:
            BrokerError: none was in time.
        """
        looked = 0
        while time.monotonic() < moment + limit_s:
            while looked < len(self.done):
                sent, done = self.done[looked]
                if sent >= moment:
                    return done - moment
                looked += 1
            time.sleep(POLL_S)
        raise BrokerError(f"no declare within {limit_s:g} s of a kill")

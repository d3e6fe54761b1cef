"""A client that asks one thing after the other, and notes when each was asked for and done."""

import threading
import time
from abc import ABC, abstractmethod
from itertools import count, pairwise
from types import TracebackType
from typing import Any, Self

import pika
from pika.exceptions import AMQPError

from bench.brokers import BrokerError

#: Between two of them: a steady question, no load.
PAUSE_S = 0.005
RETRY_S = 0.01
POLL_S = 0.001
#: An answer that never comes must not hold the whole run.
JOIN_S = 10.0


class Beat(ABC):
    """Runs inside `with`; a connection that is lost is made anew, and counted."""

    #: What is done, for messages.
    noun: str

    def __init__(self, port: int) -> None:
        self._parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._serial = count(1)
        #: When each that succeeded was sent and answered, on the monotonic clock.
        self.done: list[tuple[float, float]] = []
        #: Those that ended with their channel or connection.
        self.failed = 0

    @abstractmethod
    def prepare(self, channel: Any) -> None:
        """What a new channel needs first."""

    @abstractmethod
    def ask(self, channel: Any, number: int) -> None:
        """One of them; returns when it is answered."""

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
        self._thread.join(JOIN_S)

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                with pika.BlockingConnection(self._parameters) as connection:
                    self._go_on(connection.channel())
            except (AMQPError, OSError):
                self.failed += 1
                time.sleep(RETRY_S)

    def _go_on(self, channel: Any) -> None:
        self.prepare(channel)
        while not self._is_over.wait(PAUSE_S):
            sent = time.monotonic()
            self.ask(channel, next(self._serial))
            self.done.append((sent, time.monotonic()))

    def await_count(self, number: int, limit_s: float) -> None:
        """Until so many have succeeded.

        Raises:
            BrokerError: they have not in time.
        """
        deadline = time.monotonic() + limit_s
        while len(self.done) < number:
            if time.monotonic() > deadline:
                said = f"{len(self.done)} of {number} {self.noun}s within {limit_s:g} s"
                raise BrokerError(said)
            time.sleep(POLL_S)

    def await_one_since(self, moment: float, limit_s: float) -> float:
        """Seconds from a moment until the first is done that was sent after it.

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
        raise BrokerError(f"no {self.noun} within {limit_s:g} s of a kill")

    def longest_gap(self, since: float) -> float:
        """The longest time between two answers that follow each other, the later after a moment."""
        answers = [done for _, done in list(self.done)]
        pairs = pairwise(answers)
        return max((later - sooner for sooner, later in pairs if later >= since), default=0.0)

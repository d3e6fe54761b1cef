"""Ctrl-C, while a stream runs: a wish, and no exception in the middle of a word to Java."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts() -> Iterator[threading.Event]:
    """Set when somebody wants it to end; who insists gets a KeyboardInterrupt."""
    wanted = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wanted
        return

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if wanted.is_set():
            raise KeyboardInterrupt
        wanted.set()

    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield wanted
    finally:
        signal.signal(signal.SIGINT, before)

"""A line on a terminal that tells how far a pipeline is, and is gone when it has ended."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BEAT_S = 0.25
BAR_CHARACTERS = 30
#: How much is done of how much, in which words; None: nothing is known yet.
Measure = Callable[[], tuple[float, float, str] | None]


class Progress:
    """Drawn by a thread of its own; `measure` may be exchanged while it runs."""

    def __init__(self, title: str, measure: Measure, stream: TextIO) -> None:
        self.measure = measure
        self.phase = ""
        self._title = title
        self._stream = stream
        self._began_s = time.monotonic()
        self._is_shown = False
        self._writing = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self.clear()

    def clear(self) -> None:
        """Take the line away, since something else is to be written."""
        with self._writing:
            if self._is_shown:
                self._stream.write("\r\x1b[2K")
                self._stream.flush()
                self._is_shown = False

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            # A session or a query that is ending has nothing to say any more.
            with contextlib.suppress(Exception):
                self.draw()

    def draw(self) -> None:
        found = self.measure()
        title = f"{self._title}: {self.phase}" if self.phase else self._title
        text = line(title, found, time.monotonic() - self._began_s)
        width = shutil.get_terminal_size().columns - 1
        with self._writing:
            if not self._over.is_set():
                self._stream.write(f"\r\x1b[2K{text[:width]}")
                self._stream.flush()
                self._is_shown = True


def line(title: str, found: tuple[float, float, str] | None, took_s: float) -> str:
    if found is None:
        return f"{title}  {took_s:.0f} s"
    done, whole, words = found
    share = min(1.0, done / whole) if whole > 0 else 0.0
    full = round(share * BAR_CHARACTERS)
    bar = "━" * full + "╌" * (BAR_CHARACTERS - full)
    return f"{title}  {bar} {share:4.0%}  {words}  {took_s:.0f} s"


#: What is drawn at present, if anything.
_current: Progress | None = None


def clear() -> None:
    if _current is not None:
        _current.clear()


def measure_by(measure: Measure) -> None:
    """Go on with another way to tell how far it is."""
    if _current is not None:
        _current.measure = measure


def phase(words: str) -> None:
    """What is being done from here on, for whoever looks."""
    if _current is not None:
        _current.phase = words


@contextmanager
def shown(
    title: str, spark: SparkSession | None = None, stream: TextIO | None = None
) -> Iterator[None]:
    """While inside, on a terminal only: how many of Spark's tasks are done, once there is one."""
    global _current  # noqa: PLW0603
    with contextlib.ExitStack() as held:
        if stream is None and sys.stderr.isatty():
            # One of its own: while Java starts, what goes to stderr is kept back.
            stream = held.enter_context(os.fdopen(os.dup(sys.stderr.fileno()), "w"))
        if stream is None or not stream.isatty():
            yield
            return
        measure = (lambda: None) if spark is None else functools.partial(tasks_of, spark)
        _current = Progress(title, measure, stream)
        _current.start()
        try:
            yield
        finally:
            _current.stop()
            _current = None


def tasks_of(spark: SparkSession) -> tuple[float, float, str] | None:
    """The tasks of what Spark works on now."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
    known = [one for one in stages if one is not None]
    whole = sum(one.numTasks for one in known)
    if not whole:
        return None
    done = sum(one.numCompletedTasks for one in known)
    return float(done), float(whole), f"{done:,} of {whole:,} tasks"


def rows_of(query: StreamingQuery) -> tuple[float, float, str] | None:
    """The positions that a query has read, of those that its queues had when it last looked."""
    said: Any = query.lastProgress
    if said is None:
        return None
    source = said["sources"][0]
    end, latest = (_positions(source.get(name)) for name in ("endOffset", "latestOffset"))
    done = sum(end.values())
    whole = max(done, sum({**end, **latest}.values()))
    return float(done), float(whole), f"position {done:,} of {whole:,}"


def _positions(offset: Any) -> dict[str, int]:
    """By queue: the source's offsets are {queue: {"seq": position, …}}."""
    if isinstance(offset, str):
        offset = json.loads(offset)
    found = {}
    for name, one in (offset or {}).items():
        seq = one.get("seq") if isinstance(one, dict) else None
        if isinstance(seq, int):
            found[str(name)] = seq
    return found

"""The application that the worker under test runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import Celery

app = Celery(
    "warren-test",
    broker=os.environ["WARREN_TEST_BROKER"],
    backend=os.environ["WARREN_TEST_BACKEND"],
)
app.conf.update(
    broker_connection_retry_on_startup=False,
    result_expires=600,
    task_acks_late=True,
    # The default is a second, which is most of what the chord test would take.
    result_chord_retry_interval=0.2,
)


@app.task
def add(x: int, y: int) -> int:
    return x + y


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task
def stamp() -> float:
    return time.time()


@app.task
def pool_process() -> int:
    return os.getpid()


@app.task(bind=True, max_retries=5)
def third_time_lucky(self, diary: str) -> int:  # type: ignore[no-untyped-def]
    path = Path(diary)
    tries = len(path.read_text().splitlines()) + 1 if path.exists() else 1
    with path.open("a") as file:
        file.write(f"try {tries}\n")
    if tries < 3:
        raise self.retry(countdown=0.1)
    return tries

"""`warrenctl bench` with a load of one's own: how many clients, of what kind, how fast."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from typing import Any

from warren.ctl.command import Run, number
from warren.ctl.errors import UNAVAILABLE, CtlError, usage

#: Naming one of them asks for a load of one's own.
OPTIONS = ("producers", "consumers", "sizes", "window", "rate", "prefetch", "transient")
CLIENTS_MAX = 200
SIZE_LEAST, SIZE_MOST = 8, 100_000
#: All clients begin at the same moment, so long after the last is ready.
TOGETHER_S = 0.2
#: How long a worker may take beyond its time.
LATE_S = 30.0


def own_load(run: Run) -> dict[str, Any] | None:
    """The load that the options describe; None where they describe none. Raises CtlError."""
    if not set(OPTIONS) & set(run.options):
        return None
    load = {
        "producers": _count(run, "producers", 1, CLIENTS_MAX),
        "consumers": _count(run, "consumers", 1, CLIENTS_MAX),
        "window": _count(run, "window", 1000, 1_000_000),
        "rate": _count(run, "rate", 0, 10_000_000),
        "prefetch": _count(run, "prefetch", 0, 65_535),
        "persistent": "transient" not in run.options,
        "sizes": _sizes(run.options.get("sizes", run.options.get("size", "200"))),
    }
    if not load["producers"] and not load["consumers"]:
        raise usage("a load needs a producer or a consumer")
    return load


def _count(run: Run, name: str, default: int, most: int) -> int:
    found = number(run.options.get(name, str(default)), name)
    if not 0 <= found <= most:
        raise usage(f"{name} must be between 0 and {most}")
    return found


def _sizes(text: str) -> list[int]:
    found = [number(word, "sizes") for word in text.split(",")]
    if not all(SIZE_LEAST <= size <= SIZE_MOST for size in found):
        raise usage(f"sizes must be between {SIZE_LEAST} and {SIZE_MOST}, with commas between")
    return found


def measure(load: dict[str, Any], uri: str, queue: str, seconds: int) -> list[dict[str, Any]]:
    """Carry a load out; its rows. Raises CtlError."""
    common = {**load, "uri": uri, "queue": queue, "seconds": seconds}
    # So many a second from all of them together.
    rate = load["rate"] / load["producers"] if load["producers"] else 0
    tasks = [
        {**common, "produces": False, "name": f"warrenctl bench: consumer {number}"}
        for number in range(load["consumers"])
    ]
    tasks += [
        {**common, "rate": rate, "produces": True, "name": f"warrenctl bench: producer {number}"}
        for number in range(load["producers"])
    ]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(_Worker(task)) for task in tasks]
        for worker in workers:
            worker.hear()
        begin_s = time.monotonic() + TOGETHER_S
        for worker in workers:
            worker.tell(str(begin_s))
        found = [worker.hear() for worker in workers]
    return _rows(load, found, seconds)


class _Worker:
    """A process with one client."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "warren.ctl.bench_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.tell(json.dumps(task))

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._process.wait(LATE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            # Why it has ended is what it says next.
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        said: dict[str, Any] = json.loads(line) if line else {"error": "a client has ended"}
        if "error" in said:
            raise CtlError(UNAVAILABLE, f"Error: {said['error']}")
        return said


def _rows(load: dict[str, Any], found: list[dict[str, Any]], seconds: int) -> list[dict[str, Any]]:
    size = sum(load["sizes"]) / len(load["sizes"])
    window = f"confirmed, window {load['window']}" if load["window"] else "published"
    rows = []
    for wanted, title, kind in (
        (load["producers"], f"{load['producers']} producers, {window}", "published"),
        (load["consumers"], f"{load['consumers']} consumers, delivered", "consumed"),
    ):
        if not wanted:
            continue
        of_kind = [one for one in found if kind in one]
        counted = "confirmed" if kind == "published" and load["window"] else kind
        count = sum(one[counted] for one in of_kind)
        times = sorted(took for one in of_kind for took in one["times"])
        rows.append(
            {
                "load": title,
                "messages": count,
                "msg_per_s": round(count / seconds),
                "mb_per_s": round(count * size / seconds / 1e6, 1),
                **_quantiles(times),
            }
        )
    return rows


def _quantiles(times_s: list[float]) -> dict[str, float | None]:
    last = len(times_s) - 1
    if last < 0:
        return {"p50_ms": None, "p99_ms": None, "max_ms": None}
    at = {"p50_ms": last // 2, "p99_ms": last * 99 // 100, "max_ms": last}
    return {name: round(times_s[index] * 1000, 3) for name, index in at.items()}

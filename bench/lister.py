"""Somebody who asks for all queues again as soon as the answer is there, in a process of its own.

Started as a program it prints the seconds that each answer took, a line each, until it is ended.
"""

import base64
import contextlib
import subprocess
import sys
import time
import urllib.request
from types import TracebackType
from typing import Self

from bench.brokers import ROOT, BrokerError, end_process

PATH = "/api/queues"
CREDENTIALS = base64.b64encode(b"guest:guest").decode()
ANSWER_S = 120.0
CHUNK_BYTES = 1 << 20
RETRY_S = 0.2


def read_all(url: str) -> int:
    """The length of an answer, which is thrown away."""
    request = urllib.request.Request(url, headers={"Authorization": f"Basic {CREDENTIALS}"})
    size = 0
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        while piece := answer.read(CHUNK_BYTES):
            size += len(piece)
    return size


def await_api(port: int, limit_s: float) -> None:
    """Until the management API answers.

    Raises:
        BrokerError: it does not in time.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            read_all(f"http://127.0.0.1:{port}/api/overview")
            return
        time.sleep(RETRY_S)
    raise BrokerError(f"no management API within {limit_s:.0f} s")


class Lister:
    """Lists inside `with`; afterwards, how long each list took."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}{PATH}"
        self._process: subprocess.Popen[bytes] | None = None
        self.took_s: list[float] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.lister", self._url],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        end_process(self._process)
        self.took_s = [float(line) for line in self._process.stdout.read().split()]
        self._process.stdout.close()


def main() -> None:
    """The process's part."""
    while True:
        began = time.monotonic()
        read_all(sys.argv[1])
        print(f"{time.monotonic() - began:.6f}", flush=True)


if __name__ == "__main__":
    main()

"""The broker under test: `warren serve` as a process of its own, ended by force or by request."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0


class StartError(Exception):
    """The broker ended by itself instead of getting ready."""


class Kind(Enum):
    """Which broker."""

    AS_SERVED = "as served"
    #: With checkpoints, compaction and paging all the time.
    RESTLESS = "restless"
    #: Without a store; the checker must find that out.
    FORGETFUL = "forgetful"


class BrokerProcess:
    """One data directory, and a process on it from time to time."""

    host = "127.0.0.1"

    def __init__(
        self, base: Path, settings: Sequence[str] = (), kind: Kind = Kind.AS_SERVED
    ) -> None:
        """With lines for its configuration."""
        self.base = base
        self.kind = kind
        self.data = base / "data"
        self.log = base / "broker.log"
        self.config = base / "warren.conf"
        self.port = 0
        #: How long the last start took.
        self.start_s = 0.5
        self._process: subprocess.Popen[bytes] | None = None
        base.mkdir(parents=True, exist_ok=True)
        lines = ["listeners.tcp.default = 127.0.0.1:0", "log.console.level = info", *settings]
        self.config.write_text("\n".join(lines) + "\n")

    def spawn(self) -> int:
        """Start the process; the descriptor that tells when it is ready."""
        assert self._process is None
        reading, writing = os.pipe()
        serve = ["serve", "--config", str(self.config)]
        arguments = {
            Kind.AS_SERVED: ["-m", "warren", *serve],
            Kind.RESTLESS: [str(Path(__file__).with_name("restless_serve.py")), *serve],
            Kind.FORGETFUL: ["-m", "warren", "dev", "--host", self.host, "--port", "0"],
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *arguments[self.kind], "--ready-fd", str(writing)],
                env={**os.environ, "WARREN_DATA_DIR": str(self.data)},
                pass_fds=[writing],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        os.close(writing)
        return reading

    async def start(self) -> None:
        """Start and wait until it serves.

        Raises:
            StartError: it does not.
        """
        begun = time.monotonic()
        reading = self.spawn()
        with os.fdopen(reading) as ready:
            waiting = asyncio.to_thread(ready.readline)
            try:
                url = (await asyncio.wait_for(waiting, START_TIMEOUT_S)).strip()
            except TimeoutError:
                self.kill()
                raise StartError(f"not ready in {START_TIMEOUT_S} s\n{self.last_words()}") from None
        if not url:
            code = self._wait()
            raise StartError(f"ended with {code}\n{self.last_words()}")
        self.start_s = time.monotonic() - begun
        port = urlsplit(url).port
        assert port is not None
        self.port = port

    async def kill_while_starting(self, after_s: float) -> bool:
        """Start, and kill before it serves; whether it was not ready yet."""
        reading = self.spawn()
        try:
            await asyncio.sleep(after_s)
            self.kill()
            return not os.read(reading, 1)
        finally:
            os.close(reading)

    def kill(self) -> None:
        """As the machine's power would: no handler runs."""
        assert self._process is not None
        self._process.kill()
        self._wait()

    async def stop(self) -> int:
        """Ask it to end; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self._wait)

    def end(self) -> None:
        """End whatever is left of it."""
        if self._process is not None:
            self.kill()

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _wait(self) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code

    def segments(self) -> list[Path]:
        """The files of its log, in order."""
        return sorted((self.data / "log").glob("*.wal"))

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:]

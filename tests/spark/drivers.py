"""Starts driver programs as processes of their own, and kills them with all that they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
#: A Spark session takes its time to start on a busy machine.
START_S = 240.0
RUN_S = 600.0


class Driver:
    """One run of a program, in a session of its own so that all of it can be killed."""

    def __init__(
        self, program: str, base: Path, *arguments: str, master: str = "local[2,4]"
    ) -> None:
        self.output = base / f"{program}-{time.monotonic_ns()}.log"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / f"{program}.py"), *arguments, master],
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def has_said(self, word: str) -> bool:
        return f"{word}\n" in self.output.read_text(errors="replace")

    def wait_for(self, is_so: Callable[[], bool], timeout_s: float = START_S) -> bool:
        """Until something is so; False when the program ended before."""
        deadline_s = time.monotonic() + timeout_s
        while not is_so():
            if self.process.poll() is not None:
                return is_so()
            assert time.monotonic() < deadline_s, self.output.read_text(errors="replace")[-4000:]
            time.sleep(0.02)
        return True

    def processes(self, word: str) -> list[int]:
        """Those of its processes that have a word in their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            # One that ends meanwhile is none.
            with contextlib.suppress(OSError, ValueError):
                pid = int(entry.name)
                is_ours = os.getsid(pid) == self.process.pid
                if is_ours and word.encode() in (entry / "cmdline").read_bytes():
                    found.append(pid)
        return sorted(found)

    def kill(self) -> None:
        """As a power cut would: the driver and every process it has started, at once."""
        # On a fast machine it may have ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(60)

    def finish(self) -> None:
        self.process.wait(RUN_S)
        assert self.process.returncode == 0, self.output.read_text(errors="replace")[-4000:]
        assert self.has_said("finished")

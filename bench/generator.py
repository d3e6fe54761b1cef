"""Builds the load generator (bench/load, C) and runs it against a broker.

The generator prints an event when measuring begins and when it ends: at these moments the broker's
CPU time is read, so warm-up and tear-down stay out of the cost per message.
"""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.brokers import Broker, BrokerError
from bench.measure import Usage, usage_of

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "load"
PROGRAM = HERE / "bin" / "amqpload"
COMPILE_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread")

#: The generator has time-outs of its own; this one only catches a generator gone wrong.
RUN_TIMEOUT_S = 900.0


class GeneratorError(Exception):
    """The generator refused, or the broker refused the generator."""


@dataclass(frozen=True, slots=True)
class Run:
    """What the generator reported, and what the broker used while it measured."""

    result: dict[str, Any]
    broker_cpu_s: float
    #: From before the generator started until after it ended: for work that is over in a blink.
    whole_cpu_s: float
    #: Resident memory at the end of measuring.
    broker_rss_bytes: int

    def number(self, key: str) -> float:
        """A number of the report; 0 when it is not in it."""
        return float(self.result.get(key, 0.0))

    def cpu_us_per(self, key: str) -> float:
        """The broker's CPU microseconds for each of the things counted under `key`."""
        count = self.number(key)
        return self.broker_cpu_s / count * 1e6 if count else 0.0


def build() -> None:
    """Compiles the generator when a source is newer than it.

    Raises:
        GeneratorError: no compiler, or it does not compile.
    """
    sources = sorted(SOURCES.glob("*.[ch]"))
    if PROGRAM.exists():
        built_at = PROGRAM.stat().st_mtime
        if all(source.stat().st_mtime <= built_at for source in sources):
            return
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise GeneratorError("the load generator is C: install gcc first")
    PROGRAM.parent.mkdir(exist_ok=True)
    units = [str(source) for source in sources if source.suffix == ".c"]
    command = [compiler, *COMPILE_FLAGS, "-o", str(PROGRAM), *units]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if compiled.returncode:
        raise GeneratorError(f"amqpload does not compile:\n{compiled.stderr}")


def sync_latency(path: Path, size: int, count: int, rate: int) -> dict[str, float]:
    """Milliseconds of an append with fdatasync to a new file, by quantile.

    Raises:
        GeneratorError: the file cannot be written.
    """
    return _journal_latency("sync", path, size, count, rate)


def floor_latency(path: Path, size: int, count: int, rate: int) -> dict[str, float]:
    """Milliseconds from the due time to the answer of a server that only syncs, by quantile.

    Raises:
        GeneratorError: the file cannot be written, or the server failed.
    """
    return _journal_latency("floor", path, size, count, rate)


def _journal_latency(mode: str, path: Path, size: int, count: int, rate: int) -> dict[str, float]:
    numbers = {"--size": size, "--messages": count, "--rate": rate}
    arguments = [text for name, value in numbers.items() for text in (name, str(value))]
    result = _result(["--mode", mode, "--file", str(path), *arguments])
    return {quantile: float(value) for quantile, value in result[f"{mode}_ms"].items()}


def count_ready(broker: Broker, arguments: list[str]) -> int:
    """How many messages the load's first queue has ready.

    Raises:
        GeneratorError: the broker does not answer, or has no such queue.
    """
    result = _result(["--mode", "count", "--endpoints", broker.endpoint, *arguments])
    return int(result["ready"])


def _result(arguments: list[str]) -> dict[str, Any]:
    """A run in which nothing has to be read from the broker at set moments."""
    done = subprocess.run(
        [str(PROGRAM), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_TIMEOUT_S,
    )
    if done.returncode:
        raise GeneratorError(done.stderr.strip() or f"amqpload ended with {done.returncode}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(broker: Broker, arguments: list[str]) -> Run:
    """Runs one load to its end.

    Raises:
        GeneratorError: it failed; the text is the generator's own.
    """
    command = [str(PROGRAM), "--endpoints", broker.endpoints, *arguments]
    start = usage_of(broker.pids)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    marks: dict[str, Usage] = {}
    result: dict[str, Any] | None = None
    try:
        assert process.stdout is not None
        for line in process.stdout:
            report = json.loads(line)
            if report["event"] == "result":
                result = report
            else:
                marks[report["event"]] = usage_of(broker.pids)
        _, errors = process.communicate(timeout=RUN_TIMEOUT_S)
    except (BrokerError, json.JSONDecodeError, subprocess.TimeoutExpired) as error:
        raise GeneratorError(f"{error}") from error
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if process.returncode or result is None or len(marks) < 2:
        raise GeneratorError(errors.strip() or f"amqpload ended with {process.returncode}")
    begin, end = marks["measuring"], marks["measured"]
    whole_cpu_s = usage_of(broker.pids).cpu_s - start.cpu_s
    return Run(result, end.cpu_s - begin.cpu_s, whole_cpu_s, end.rss_bytes)


class OpenFlow:
    """A flow that goes on until it is told to end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        #: The generator's report, once it has ended.
        self.result: dict[str, Any] = {}

    def await_measuring(self) -> None:
        """Until the warm-up is over.

        Raises:
            GeneratorError: it ended instead.
        """
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self._fail(self._process.communicate()[1])

    def end(self) -> None:
        """Ends it and keeps its report.

        Raises:
            GeneratorError: it failed.
        """
        self._process.send_signal(signal.SIGINT)
        output, errors = self._process.communicate(timeout=RUN_TIMEOUT_S)
        if self._process.returncode:
            self._fail(errors)
        self.result = json.loads(output.splitlines()[-1])

    def _fail(self, errors: str) -> None:
        raise GeneratorError(errors.strip() or f"amqpload ended with {self._process.returncode}")


@contextmanager
def open_flow(arguments: list[str]) -> Iterator[OpenFlow]:
    """Runs a flow inside `with`, until its `end`; inside, it is being measured.

    Raises:
        GeneratorError: it failed.
    """
    command = [str(PROGRAM), *arguments, "--seconds", str(RUN_TIMEOUT_S)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        flow = OpenFlow(process)
        flow.await_measuring()
        yield flow
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()

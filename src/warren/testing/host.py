"""Runs a node in a thread of its own, and lets other threads act on it safely.

Everything the engine holds belongs to the thread's event loop. `call` brings a function there, runs
it in a turn of the node and carries its result, or its exception, back. Faults that nobody waits
for are gathered in `faults`.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from warren.config.settings import Settings
from warren.node.data_directory import open_data_directory
from warren.node.node import Node
from warren.telemetry.log import logger

#: A call into the broker is a matter of microseconds; a loop that does not answer is stuck.
CALL_TIMEOUT_S = 30.0
#: How long clients that are still connected have to take their goodbye.
GOODBYE_S = 0.2

Result = TypeVar("Result")


class NodeThread:
    """One thread, one loop, one node; it can be started once."""

    def __init__(
        self, settings: Settings, data_dir: Path | None = None, with_http: bool = False
    ) -> None:
        self.faults: list[BaseException] = []
        self._settings = settings
        self._data_dir = data_dir
        self._with_http = with_http
        self._ready: concurrent.futures.Future[Node] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._main, name="warren-broker", daemon=True)
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    def start(self) -> Node:
        """Returns when clients can connect. Raises StartError."""
        self._thread.start()
        try:
            self._node = self._ready.result(CALL_TIMEOUT_S)
        except BaseException:
            self._thread.join(CALL_TIMEOUT_S)
            raise
        return self._node

    def stop(self) -> None:
        """Returns when the thread is gone; a second time does nothing."""
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None and self._thread.is_alive():
            loop.call_soon_threadsafe(stopping.set)
        self._thread.join(CALL_TIMEOUT_S)
        self._node = None
        if self._thread.is_alive():
            raise RuntimeError("the broker's thread does not stop: its event loop is stuck")

    def call(self, action: Callable[[Node], Result]) -> Result:
        """Run `action(node)` in the broker's thread and return what it returns."""
        node, loop = self._node, self._loop
        if node is None or loop is None or not self._thread.is_alive():
            raise RuntimeError("the broker is not running")
        if threading.current_thread() is self._thread:
            return node.in_turn(lambda: action(node))
        outcome: concurrent.futures.Future[Result] = concurrent.futures.Future()

        def run() -> None:
            try:
                outcome.set_result(node.in_turn(lambda: action(node)))
            except BaseException as error:  # noqa: BLE001 - it is raised again by the caller
                outcome.set_exception(error)

        loop.call_soon_threadsafe(run)
        return outcome.result(CALL_TIMEOUT_S)

    def _main(self) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to
            self.faults.append(error)
            if not self._ready.done():
                self._ready.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_loop_fault)
        self._stopping = asyncio.Event()
        # The test's memory is not the broker's: an alarm for it would only puzzle.
        log = _log_with(_FaultCollector(self.faults))
        directory = open_data_directory(self._data_dir) if self._data_dir is not None else None
        try:
            node = Node(self._settings, log=log, watch_memory=False, data_dir=self._data_dir)
            node.start()
            if self._with_http:
                await node.start_operating().ready()
            self._ready.set_result(node)
            try:
                await self._stopping.wait()
            finally:
                await node.stop(GOODBYE_S)
            if node.failure.error is not None:
                self.faults.append(node.failure.error)
        finally:
            if directory is not None:
                directory.close()

    def _on_loop_fault(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.faults.append(error or RuntimeError(str(context.get("message"))))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


class _FaultCollector(logging.Handler):
    """Links survive a fault of the engine and log it; a test should hear of it."""

    def __init__(self, faults: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the exception, if the record has one."""
        if record.exc_info and record.exc_info[1] is not None:
            self._faults.append(record.exc_info[1])


def _log_with(handler: logging.Handler) -> logging.Logger:
    """A logger of this broker only, whose records go on to the common one."""
    common = logger("connection")
    own = logging.Logger(common.name)
    own.parent = common
    own.addHandler(handler)
    return own

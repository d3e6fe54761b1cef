"""A loop on virtual time for one node: what the product asks of asyncio, and nothing more."""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop, _set_running_loop
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.broker_node import BrokerNode


class Handle:
    """Something that is to happen, unless it is cancelled."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class NodeLoop(asyncio.AbstractEventLoop):
    """Callbacks end with the life of the node, and wait while it is paused."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node

    def time(self) -> float:
        return self._node.now_ms / 1000

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self.call_later(0, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        node, handle = self._node, Handle()

        def act() -> None:
            if not handle.is_cancelled:
                with self.running():
                    if context is None:
                        callback(*args)
                    else:
                        context.run(callback, *args)

        node.world.after(max(0, int(delay * 1e6)), node.soon(act))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **_named: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self)

    def run_in_executor(
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """What has a thread of its own elsewhere is done at once."""
        future = self.create_future()
        future.set_result(func(*args))
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        # Without one it says that a task has ended with its node, as it should.
        if "exception" in context:
            raise context["exception"]

    def running(self) -> Running:
        """For as long as the node acts, this is the running loop."""
        return Running(self)


class Running:
    """Made for every turn: a generator would take longer than what it does."""

    __slots__ = ("_before", "_loop")

    def __init__(self, loop: NodeLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        self._before = _get_running_loop()
        _set_running_loop(self._loop)

    def __exit__(self, *_raised: object) -> None:
        _set_running_loop(self._before)

"""The end of a node that can no longer keep what it promises."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from warren.node.errors import StartError
from warren.telemetry.log import logger

if TYPE_CHECKING:
    from warren.node.node import Node


class NodeFailed(Exception):
    """The node could not go on; the text says what failed and what to do."""


class Failure:
    """What ended the node: set once, by whoever meets it, awaited by whoever runs the node.

    For the loop's thread only; others hand it over with `call_soon_threadsafe(failure.set, error)`.
    """

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._is_set = asyncio.Event()

    def set(self, error: BaseException) -> None:
        """The node must end. The first error counts: those after it mostly follow from it."""
        if self.error is None:
            self.error = error
            self._is_set.set()

    async def wait(self) -> BaseException:
        """Until there is an error, which may be never; the error."""
        await self._is_set.wait()
        assert self.error is not None
        return self.error


def give_up(node: Node) -> NodeFailed:
    """Take no more from anybody, tell nobody anything; the exception to end the process with.

    Clients are not said goodbye: it would go through the engine, which may want the failed log for
    it. They see their connections end with the process, and what was not confirmed they send again.
    """
    if isinstance(node.failure.error, StartError):
        # Nothing has failed: the others do not take it, or it cannot listen.
        node.abandon()
        return NodeFailed(str(node.failure.error))
    text = _explain(node)
    logger("store").critical(text)
    # Its watches first: the disk's would clear the alarm again.
    node.abandon()
    node.engine.set_alarm("disk", True, "the log has failed")
    return NodeFailed(text)


def _explain(node: Node) -> str:
    """What failed and what to do, by the kind of the error."""
    error = node.failure.error
    where = "" if node.data_dir is None else f" in {node.data_dir}"
    if isinstance(error, OSError):
        return (
            f"the log{where} failed: {_reason(error)}. Nothing more was confirmed; "
            "the disk may be failing; check the file system, then start again"
        )
    return (
        f"a fault of ours: {_reason(error)}. Nothing more was confirmed, and what was is{where}; "
        "the log says where it happened; please report it, then start again"
    )


def _reason(error: BaseException | None) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__

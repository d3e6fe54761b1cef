"""Starting the node's process anew, as the same process: everything begins from scratch."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import NoReturn

_READY = "--ready-fd"
#: How long the answer to a request that ends the node has to leave.
ANSWER_LEAVES_S = 0.1


class Again:
    """Whether the node is to be started again after its end, and how."""

    def __init__(self, ready_fd: int | None, watch_fd: int | None) -> None:
        self.wanted = False
        #: Whoever waited for the first start has heard of it.
        self.has_told_ready = False
        self._ready_fd = ready_fd
        self._watch_fd = watch_fd

    def after_answer(self, loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
        """Have the node stop and start again, when the answer to whoever asked has left."""
        self.wanted = True
        loop.call_later(ANSWER_LEAVES_S, stopping.set)

    def execute(self) -> NoReturn:
        """The same command with the same process id; descriptors but those it is given close."""
        words = list(sys.orig_argv[1:])
        kept = {self._watch_fd}
        if self.has_told_ready:
            words = without_option(words, _READY)
        else:
            kept.add(self._ready_fd)
        sys.stdout.flush()
        sys.stderr.flush()
        logging.shutdown()
        first = 3
        for fd in sorted(fd for fd in kept if fd is not None and fd >= first):
            os.closerange(first, fd)
            os.set_inheritable(fd, True)
            first = fd + 1
        os.closerange(first, os.sysconf("SC_OPEN_MAX"))
        os.execv(sys.executable, [sys.executable, *words])


def without_option(words: list[str], option: str) -> list[str]:
    """A command line without an option and its value."""
    kept: list[str] = []
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word == option:
            skips = True
        elif not word.startswith(f"{option}="):
            kept.append(word)
    return kept

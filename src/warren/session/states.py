"""The states of a connection, as numbers shared with the compiled part."""

from __future__ import annotations

from enum import IntEnum


class ConnectionState(IntEnum):
    """In the order a connection goes through them; keep in step with `connection.pxd`."""

    AWAIT_GREETING = 0
    AWAIT_START_OK = 1
    AWAIT_SECURE_OK = 2
    AWAIT_TUNE_OK = 3
    AWAIT_OPEN = 4
    RUNNING = 5
    CLOSING = 6
    CLOSED = 7


#: What error texts call the states, by number.
STATE_NAMES = (
    "pre_init",
    "starting",
    "securing",
    "tuning",
    "opening",
    "running",
    "closing",
    "closed",
)

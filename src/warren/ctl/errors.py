"""Why a command fails, and the exit status that says so (those of sysexits.h)."""

from __future__ import annotations

USAGE, BAD_DATA, NO_USER = 64, 65, 67
UNAVAILABLE, SOFTWARE, TIMEOUT, NO_PERMISSION = 69, 70, 75, 77


class CtlError(Exception):
    """The text is for the person at the terminal."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def usage(text: str) -> CtlError:
    """The command was asked for wrongly."""
    return CtlError(USAGE, f"Error (argument validation): {text}")

"""A node whose log has failed ends: what was under way then is told in a line, not as a fault.

Whatever wants the log from then on meets the same error, in the middle of connections, timers and
tasks. Where that is says nothing about the cause, which the node tells when it ends.
"""

from __future__ import annotations

import logging


class Endings(logging.Filter):
    """Takes tracebacks out of records about a log that has failed."""

    def __init__(self) -> None:
        super().__init__()
        #: The directories of logs, as their errors name them.
        self.directories: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """All records are written, some of them shorter."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, OSError) and error.filename in self.directories:
            what = record.getMessage().partition("\n")[0]
            record.msg = "%s; it is not answered any more, since the log has failed: %s"
            record.args = (what, error.strerror)
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


endings = Endings()

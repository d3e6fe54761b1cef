"""A process that appends until it is killed, printing its persisted mark as it moves."""

from __future__ import annotations

import os
import select
import sys

from small_logs import payload

from warren.store.scan import repair_tail, scan
from warren.store.writer import LogWriter


def main(directory: str) -> None:
    found = scan(directory).finish()
    repair_tail(found)
    log = LogWriter(directory, found.next_sequence, segment_bytes=20_000)
    n = found.next_sequence
    while True:
        for _ in range(n % 40 + 1):
            log.append(1, payload(n))
            n += 1
        if select.select([log.event_fd], [], [], 0 if n % 7 else 0.05)[0]:
            os.eventfd_read(log.event_fd)
            log.check()
            os.write(1, b"%d\n" % log.persisted)


if __name__ == "__main__":
    main(sys.argv[1])

"""What an event journal calls its queues: numbers, written down before their first event.

Numbers of queues that are gone are given again, or a node whose clients declare a queue each would
remember all of them. Before that, every buffer that may speak of the old queue is a segment, which
has names and no numbers.
"""

from __future__ import annotations

import contextlib
import json
from collections import deque
from pathlib import Path
from typing import Protocol, TextIO

#: Virtual host, queue, incarnation, and the mirror that events are about, if any.
Key = tuple[str, str, int, str]
#: So many buffers later the log has what was given to it while the queue was there: then there is
#: no confirm left to be noted of it.
KEPT_BUFFERS = 8
#: A file that has grown by so much is written anew, when that makes it half as large.
GROWN_BYTES = 4 << 20


class Named(Protocol):
    """What numbers stand for, as the files of the journal have it (`spark/journal_files.py`)."""

    node: str

    def put(
        self, number: int, vhost: str, queue: str, incarnation: int, peer: str = "", /
    ) -> str: ...

    def as_text(self) -> str: ...

    def __len__(self) -> int: ...


class QueueNumbers:
    """See the module's text. Raises OSError when its file cannot be made."""

    def __init__(self, names: Named, path: Path) -> None:
        self.names = names
        self._path = path
        self._numbers: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        #: By virtual host and name, the number of the queue that has the name now.
        self._newest: dict[tuple[str, str], int] = {}
        #: By a queue's number, those that stand for one of its mirrors.
        self._mirrors: dict[int, list[int]] = {}
        #: (buffer, number): the buffer at hand when the queue was gone, oldest first.
        self._gone: deque[tuple[int, int]] = deque()
        self._free: list[int] = []
        self._file: TextIO = path.open("w", buffering=1)
        self._file.write(json.dumps({"node": names.node}) + "\n")
        self._least_bytes = self._file.tell()

    def close(self) -> None:
        self._file.close()

    def of_queue(self, vhost: str, queue: str, incarnation: int) -> int:
        number = self._newest[vhost, queue] = self.number((vhost, queue, incarnation, ""))
        return number

    def newest(self, vhost: str, queue: str) -> int | None:
        """The number of the queue that has, or last had, this name here."""
        return self._newest.get((vhost, queue))

    def of_mirror(self, queue_number: int, peer: str) -> int:
        vhost, queue, incarnation, _ = self._keys[queue_number]
        number = self.number((vhost, queue, incarnation, peer))
        known = self._mirrors.setdefault(queue_number, [])
        if number not in known:
            known.append(number)
        return number

    def number(self, key: Key) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._free.pop() if self._free else len(self.names)
            self._numbers[key] = number
            self._keys[number] = key
            with contextlib.suppress(OSError):
                self._file.write(self.names.put(number, *key))
        return number

    # -- numbers that are free again ---------------------------------------------------------------

    def forget(self, vhost: str, queue: str, buffer: int) -> None:
        """The queue is gone; its last event is in this buffer, but for confirms."""
        number = self._newest.pop((vhost, queue), None)
        if number is None:
            return
        for one in (number, *self._mirrors.pop(number, ())):
            del self._numbers[self._keys.pop(one)]
            self._gone.append((buffer, one))

    def finished(self, buffer: int) -> None:
        """This buffer and all before it are segments."""
        while self._gone and self._gone[0][0] + KEPT_BUFFERS <= buffer:
            self._free.append(self._gone.popleft()[1])

    def trim(self) -> None:
        """Write the file anew if most of it is about queues that are gone."""
        with contextlib.suppress(OSError):
            if self._file.tell() < 2 * self._least_bytes + GROWN_BYTES:
                return
            part = self._path.with_suffix(".part")
            part.write_text(self.names.as_text())
            part.rename(self._path)
            self._file.close()
            self._file = self._path.open("a", buffering=1)
            self._least_bytes = self._file.tell()

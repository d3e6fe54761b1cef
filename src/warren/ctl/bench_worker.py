"""One producer or consumer of `warrenctl bench`, in a process of its own.

It reads its task, a line of JSON, connects, says that it is ready and waits for a line that names
the moment to begin; at the end it writes what it has seen, a line of JSON. Moments are those of the
machine's monotonic clock, which all processes share; the first 8 bytes of a body are the moment of
its publish.
"""

from __future__ import annotations

import json
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from warren.client.address import parse_address
from warren.client.blocking import BlockingConnection
from warren.client.connection import CHANNEL, ClientError
from warren.client.frames import content_frames, method_frame
from warren.wire.constants import FRAME_BODY, FRAME_METHOD
from warren.wire.methods import decode_method
from warren.wire.properties import encode_properties

_NOW = struct.Struct(">d")
#: Messages that are sent with one call where nothing holds them back.
BATCH = 50
#: How long what is under way at the end may take.
LATE_S = 5.0
#: Times that are kept of each worker: enough for a p99.9, and no more than a report can hold.
TIMES_MAX = 20_000


class Times:
    """Durations, of which every n-th is kept when there are many."""

    def __init__(self) -> None:
        self.kept: list[float] = []
        self._step = 1
        self._seen = 0

    def note(self, took_s: float) -> None:
        self._seen += 1
        if self._seen % self._step:
            return
        self.kept.append(took_s)
        if len(self.kept) >= TIMES_MAX:
            self.kept = self.kept[::2]
            self._step *= 2


class Producer:
    """Publishes as fast as its window and its rate let it."""

    def __init__(self, connection: BlockingConnection, task: dict[str, Any]) -> None:
        self._connection = connection
        self._sizes = task["sizes"]
        self._window = task["window"]
        self._rate = task["rate"]
        self._properties = {"delivery_mode": 2} if task["persistent"] else {}
        self._publish = method_frame(CHANNEL, "basic.publish", 0, "", task["queue"], False, False)
        self._sent = self._told = 0
        #: (number of the last publish of a batch, when it was sent).
        self._waiting: deque[tuple[int, float]] = deque()
        self.times = Times()

    def prepare(self) -> None:
        if self._window:
            self._connection.call("confirm.select", False)

    def run(self, begin_s: float, seconds: float) -> dict[str, Any]:
        end_s = begin_s + seconds
        while (now_s := time.monotonic()) < end_s:
            count = self._may_send(now_s - begin_s)
            if count:
                self._send(count)
            self._listen(0.0 if count else self._rest_s(begin_s, end_s))
        while self._window and self._told < self._sent and time.monotonic() < end_s + LATE_S:
            self._listen(0.1)
        return {"published": self._sent, "confirmed": self._told, "times": self.times.kept}

    def _may_send(self, spent_s: float) -> int:
        count = BATCH
        if self._rate:
            count = min(count, int(spent_s * self._rate) + 1 - self._sent)
        if self._window:
            count = min(count, self._window - (self._sent - self._told))
        return max(0, count)

    def _rest_s(self, begin_s: float, end_s: float) -> float:
        """Until the next is due; a confirm ends it sooner."""
        due_s = begin_s + self._sent / self._rate if self._rate else end_s
        return max(0.0, min(due_s, end_s) - time.monotonic())

    def _send(self, count: int) -> None:
        now_s = time.monotonic()
        pieces = []
        for number in range(self._sent, self._sent + count):
            size = self._sizes[number % len(self._sizes)]
            body = _NOW.pack(now_s).ljust(size, b"x")
            pieces.append(self._publish)
            header = encode_properties(self._properties, size)
            pieces.append(content_frames(CHANNEL, header, body, 131_072))
        self._connection.socket.sendall(b"".join(pieces))
        self._sent += count
        if self._window:
            self._waiting.append((self._sent, now_s))

    def _listen(self, wait_s: float) -> None:
        if not select.select([self._connection.socket], [], [], wait_s)[0]:
            return
        now_s = time.monotonic()
        for kind, _, payload in self._connection.take_frames():
            if kind != FRAME_METHOD:
                continue
            method, arguments = decode_method(payload)
            if method.name == "basic.ack":
                # Brokers confirm in order, one or many: what is below is confirmed or soon will be.
                self._told = max(self._told, arguments[0])
            elif method.name.endswith(".close"):
                raise ClientError(f"{arguments[0]} {arguments[1]}")
        while self._waiting and self._waiting[0][0] <= self._told:
            self.times.note(now_s - self._waiting.popleft()[1])


class Consumer:
    """Takes what comes."""

    def __init__(self, connection: BlockingConnection, task: dict[str, Any]) -> None:
        self._connection = connection
        self._queue = task["queue"]
        self._prefetch = task["prefetch"]
        self.times = Times()

    def prepare(self) -> None:
        if self._prefetch:
            self._connection.call("basic.qos", 0, self._prefetch, False)
        auto_ack = not self._prefetch
        self._connection.call(
            "basic.consume", 0, self._queue, "", False, auto_ack, False, False, {}
        )

    def run(self, begin_s: float, seconds: float) -> dict[str, Any]:
        end_s = begin_s + seconds
        count, acked = 0, 0
        is_new = True
        while (left_s := end_s - time.monotonic()) > 0:
            if not select.select([self._connection.socket], [], [], left_s)[0]:
                break
            frames = self._connection.take_frames()
            now_s = time.monotonic()
            for kind, _, payload in frames:
                if kind == FRAME_METHOD:
                    # The first part of the next body holds its moment.
                    is_new = True
                elif kind == FRAME_BODY and is_new:
                    count, is_new = count + 1, False
                    self.times.note(now_s - _NOW.unpack_from(payload)[0])
            if self._prefetch and count - acked >= max(1, self._prefetch // 2):
                self._connection.socket.sendall(method_frame(CHANNEL, "basic.ack", count, True))
                acked = count
        return {"consumed": count, "times": self.times.kept}


def main() -> None:
    """The process's part; standard output is for the one who started it."""

    def say(value: object) -> None:
        print(json.dumps(value), flush=True)

    task = json.loads(sys.stdin.readline())
    role: Callable[..., Producer | Consumer] = Producer if task["produces"] else Consumer
    try:
        with BlockingConnection(parse_address(task["uri"]), task["name"]) as connection:
            worker = role(connection, task)
            worker.prepare()
            say({"ready": True})
            begin_s = float(sys.stdin.readline())
            time.sleep(max(0.0, begin_s - time.monotonic()))
            say(worker.run(begin_s, task["seconds"]))
    except (ClientError, OSError) as error:
        say({"error": str(error)})


if __name__ == "__main__":
    main()

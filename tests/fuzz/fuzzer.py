"""The fuzzer: spoilt conversations against one engine, and what must hold however they go.

Everything follows from the seed: the same seed gives the same inputs and the same engine, byte for
byte. Run this file to replay: `python tests/fuzz/fuzzer.py SEED [INPUTS]`.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections import deque
from random import Random
from typing import Any

from grammar import phrase
from mutate import mutate
from pair import Client, StillClock, handshake, make_engine, method, publish, split_frames

from warren.base.system import used_memory_bytes
from warren.engine.engine import Engine
from warren.model.ports import LinkPort
from warren.session.connection import Connection

HANDSHAKE = [data for data, _ in handshake()]
OPEN_CHANNELS = method(1, "channel.open") + method(2, "channel.open")
#: Phrases are made once and used again: making them is dearer than taking them apart.
PHRASES = 3000
#: Connections that stay open while others come and go, so that they meet.
LINGERING = 6
#: Inputs between two looks at everything.
EPOCH = 1000
#: No input is longer than some 100 kB: this is a hang.
SECONDS_MAX = 5.0
#: What may come and go between the first quarter and the end, in bytes.
GROWTH_BYTES_MAX = 12 * 1024 * 1024
#: A time that all timers worth waiting for are over in, in milliseconds.
LONG_MS = 100 * 24 * 3600 * 1000
#: Queues that are always there.
FURNITURE: dict[str, dict[str, Any]] = {
    "q0": {},
    "q1": {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q2"},
    "q2": {"x-message-ttl": 50, "x-dead-letter-exchange": "amq.fanout"},
    "q3": {"x-max-priority": 5, "x-dead-letter-exchange": "amq.topic"},
    "q4": {"x-single-active-consumer": True, "x-delivery-limit": 2},
    "q5": {"x-max-length-bytes": 2000, "x-overflow": "reject-publish-dlx"},
}
TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)


class Fuzzer:
    """One engine and the clients that trouble it."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Random(seed)
        self.engine: Engine = make_engine()
        self.neighbour = Client(self.engine, channels=1)
        self.neighbour.call(1, "queue.declare", 0, "neighbour", exclusive=True)
        self.neighbour.call(1, "confirm.select")
        self.lingering: deque[Connection] = deque()
        self.phrases = [phrase(self.dice) for _ in range(PHRASES)]
        self.input = b""
        self.count = 0
        self.resident: list[int] = []

    def run(self, inputs: int) -> None:
        """Feed this many mutated inputs. Raises AssertionError with how to replay."""
        try:
            for self.count in range(1, inputs + 1):
                if self.count % 10 == 0:
                    self.furnish()
                self.feed()
                if self.count % EPOCH == 0:
                    self.clean()
                    self.resident.append(self.memory())
            self.end()
        except BaseException as fault:
            fault.add_note(f"seed {self.seed}, input {self.count}: {self.input[:4000]!r}")
            fault.add_note(f"replay: python tests/fuzz/fuzzer.py {self.seed} {self.count}")
            raise

    def furnish(self) -> None:
        """Queues of every kind that inputs can meet, also after other inputs deleted them."""
        for name, arguments in FURNITURE.items():
            if name not in self.engine.vhosts["/"].queues:
                self.neighbour.call(1, "queue.declare", 0, name, arguments=arguments)
                for source in ("amq.topic", "amq.fanout", "amq.direct"):
                    self.neighbour.call(1, "queue.bind", 0, name, source, "a")

    def conversation(self) -> list[bytes]:
        """Frames of a valid conversation, then spoilt; sometimes from the handshake on."""
        dice = self.dice
        frames = [f for _ in range(dice.randrange(2, 7)) for f in dice.choice(self.phrases)]
        if dice.random() < 0.1:
            return mutate([*HANDSHAKE, OPEN_CHANNELS, *frames[:4]], dice)
        return [*HANDSHAKE, OPEN_CHANNELS, *mutate(frames, dice)]

    def feed(self) -> None:
        connection = Connection(self.engine, LinkPort(), self.engine.settings.initial_frame_max)
        connection.peer = self.neighbour.peer.peer
        self.input = data = b"".join(self.conversation())
        began = time.perf_counter()
        now_ms = self.engine.clock.now_ms()
        # In one piece or in two: a link gives what is left again, with more.
        cut = len(data) if self.dice.random() < 0.7 else self.dice.randrange(len(data) + 1)
        used = connection.receive(data[:cut], now_ms) if cut else 0
        if cut < len(data):
            connection.receive(data[used:], now_ms)
        self.lingering.append(connection)
        if len(self.lingering) > LINGERING:
            self.hang_up(self.lingering.popleft())
        if self.dice.random() < 0.2:
            self.advance(self.dice.choice([1, 10, 100, 10_000]))
        if self.count % 50 == 0:
            self.check()
        assert time.perf_counter() - began < SECONDS_MAX, "an input took far too long"

    def hang_up(self, connection: Connection) -> None:
        """As a link does when its socket is gone."""
        output = connection.outlet.output.take()
        # What a broker says is well-formed, whatever it was told.
        if self.count % 10 == 0 and not output.startswith(b"AMQP"):
            split_frames(output)
        connection.finish()

    def advance(self, ms: int) -> None:
        clock = self.engine.clock
        assert isinstance(clock, StillClock)
        clock.ms += ms
        self.engine.tick()
        for connection in self.lingering:
            connection.outlet.output.take()
            connection.became_writable()

    def check(self) -> None:
        """Invariants, and a neighbour who must not notice."""
        for queue in self.engine.vhosts["/"].queues.values():
            queue.check()
        neighbour = self.neighbour
        assert neighbour.names(publish(1, "", "neighbour", b"hello")) == ["basic.ack"]
        names = neighbour.names(method(1, "basic.get", 0, "neighbour", True))
        assert names == ["basic.get-ok"]

    def clean(self) -> None:
        """All clients but the neighbour go, and with them all that was theirs."""
        while self.lingering:
            self.hang_up(self.lingering.popleft())
        engine = self.engine
        vhost = engine.vhosts["/"]
        assert list(engine.connections) == [self.neighbour.peer]
        assert engine.channel_count == 1
        assert engine.channels_of_user == {"guest": 1}
        assert engine.connections_of_user == {"guest": 1}
        assert vhost.connections == 1
        assert not engine.reply_consumers
        for queue in list(vhost.queues.values()):
            queue.check()
            assert queue.unacked == 0
            assert not queue.consumers
            assert queue.name == "neighbour" or not queue.declaration.exclusive
            if queue.name != "neighbour":
                engine.remove_queue(queue)
        self.advance(LONG_MS)
        for name in [name for name in vhost.exchanges if name and not name.startswith("amq.")]:
            if name in vhost.exchanges:
                engine.delete_exchange(self.neighbour.peer, name, False)
        exchanges = vhost.exchanges.values()
        links = sum(b.destination_kind == "exchange" for e in exchanges for b in e.bindings())
        assert vhost.chained == links + sum(e.alternate is not None for e in exchanges)
        assert engine.delayed_messages == 0
        assert engine.timers.next_ms() is None, "timers are left over"

    def memory(self) -> int:
        """What the process holds once everything is given back, in bytes."""
        gc.collect()
        alive = sum(isinstance(thing, Connection) for thing in gc.get_objects())
        assert alive <= 2, f"{alive} connections are still alive"
        if TRIM is not None:
            TRIM(0)
        return used_memory_bytes()

    def end(self) -> None:
        self.clean()
        self.neighbour.hang_up()
        assert not self.engine.connections
        assert self.engine.channel_count == 0
        assert not self.engine.vhosts["/"].queues
        if len(self.resident) >= 4:
            growth = self.resident[-1] - self.resident[len(self.resident) // 4]
            assert growth < GROWTH_BYTES_MAX, f"memory grew by {growth} bytes: {self.resident}"


if __name__ == "__main__":
    Fuzzer(int(sys.argv[1])).run(int(sys.argv[2]) if len(sys.argv) > 2 else 10_000)

"""The state machine that the simulator replicates: it remembers every command, in order."""

from __future__ import annotations

import hashlib

import msgspec

from sim.world import Violation


class _Image(msgspec.Struct, array_like=True):
    digest: bytes
    commands: dict[bytes, int]


class Ledger:
    """Commands are unique, so one that is applied twice is a failure by itself."""

    def __init__(self) -> None:
        self.digest = b""
        #: command -> index of the entry
        self.commands: dict[bytes, int] = {}

    def apply(self, index: int, command: bytes) -> bytes:
        if command in self.commands:
            raise Violation(f"command {command!r} was applied at {self.commands[command]} before")
        self.commands[command] = index
        self.digest = hashlib.blake2b(self.digest + command, digest_size=8).digest()
        return b"%d" % index

    def image(self) -> bytes:
        return msgspec.msgpack.encode(_Image(self.digest, self.commands))

    def restore(self, image: bytes) -> None:
        loaded = msgspec.msgpack.decode(image, type=_Image)
        self.digest, self.commands = loaded.digest, loaded.commands

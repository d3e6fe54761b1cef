"""Frames of AMQP for a client: bytes in, frames out, and the other way round."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from warren.wire.constants import FRAME_BODY, FRAME_HEADER, FRAME_METHOD
from warren.wire.methods import encode_method
from warren.wire.spec import BY_NAME

_HEAD = struct.Struct(">BHI")
END = b"\xce"
HEARTBEAT = b"\x08\0\0\0\0\0\0\xce"
#: No broker sends longer ones than were agreed; this is beyond all agreements.
FRAME_BYTES_MAX = 16 * 1024 * 1024


class BrokenFrame(ValueError):
    """What came is no frame."""


class FrameReader:
    """Gathers bytes and gives whole frames: (kind, channel, payload)."""

    def __init__(self) -> None:
        self._gathered = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Raises BrokenFrame."""
        gathered = self._gathered
        gathered += data
        at = 0
        try:
            while len(gathered) - at >= 8:
                kind, channel, size = _HEAD.unpack_from(gathered, at)
                if size > FRAME_BYTES_MAX:
                    raise BrokenFrame("a frame is longer than any broker may send")
                end = at + 7 + size
                if len(gathered) <= end:
                    break
                if gathered[end] != 0xCE:
                    raise BrokenFrame("a frame does not end where it should")
                payload = bytes(gathered[at + 7 : end])
                at = end + 1
                yield kind, channel, payload
        finally:
            del gathered[:at]


def method_frame(channel: int, name: str, *arguments: Any) -> bytes:
    """The frame of a method, by its name in the protocol."""
    payload = encode_method(BY_NAME[name], *arguments)
    return _HEAD.pack(FRAME_METHOD, channel, len(payload)) + payload + END


def content_frames(channel: int, header: bytes, body: bytes, frame_max: int) -> bytes:
    """Header and body of a message; `header` is the payload of a header frame."""
    pieces = [_HEAD.pack(FRAME_HEADER, channel, len(header)), header, END]
    room = frame_max - 8
    for at in range(0, len(body), room):
        piece = body[at : at + room]
        pieces += (_HEAD.pack(FRAME_BODY, channel, len(piece)), piece, END)
    return b"".join(pieces)

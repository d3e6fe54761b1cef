"""Messages as bytes: a version octet, then MessagePack. Nothing in it can run code or grow.

A decoded message has the right types and sizes within bounds. Whether it makes sense is judged by
`Raft.receive`.
"""

from __future__ import annotations

import msgspec

from warren.cluster.raft.messages import Append, InstallSnapshot, Message
from warren.cluster.raft.types import EntryKind, ProtocolError, membership_of

VERSION = 1
#: An append is cut at `Settings.append_bytes`, but one command may be larger than that alone.
MESSAGE_BYTES_MAX = 4 << 20

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    data = bytearray((VERSION,))
    _encoder.encode_into(message, data, 1)
    return bytes(data)


def decode(data: bytes) -> Message:
    """The message in `data`; ProtocolError for anything that is not exactly one."""
    if not 1 < len(data) <= MESSAGE_BYTES_MAX:
        raise ProtocolError(f"a message of {len(data)} bytes")
    if data[0] != VERSION:
        raise ProtocolError(f"a message of version {data[0]}, not {VERSION}")
    try:
        message = _decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"a message that is none: {error}") from error
    if isinstance(message, Append):
        for entry in message.entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                membership_of(entry)
    elif isinstance(message, InstallSnapshot):
        membership = message.membership
        if not membership.is_sound() or not membership.voters:
            raise ProtocolError("a snapshot with a membership that cannot be")
    return message

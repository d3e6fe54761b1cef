"""What members say to each other beside Raft's own messages, as the payloads of control frames.

Each payload is a version octet and MessagePack, except that of `RAFT`, which is a Raft message as
`raft/codec.py` has it. Sizes are bounded by the types, before anything is made from the bytes.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from warren.cluster.raft.types import NodeId, Number, ProtocolError

#: Kinds of frames between nodes; 16 to 23 are the agreement's.
RAFT = 16
PROPOSE = 17
APPLIED = 18
JOIN = 19
JOIN_REFUSED = 20
STOPPED = 21

VERSION = 1
#: No frame between nodes is longer than this and a little, so neither is a command in one.
FRAME_BYTES_MAX = 1 << 20
#: A change of the definitions; a Raft append must hold one with all that is around it.
CHANGE_BYTES_MAX = 512 << 10
#: Proposals are sent on in frames of about so many bytes.
PROPOSE_BYTES = 256 << 10
PROPOSE_COUNT_MAX = 1024


class Propose(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Proposals for the leader to put into its log, in this order."""

    proposals: Annotated[
        tuple[Annotated[bytes, Meta(max_length=FRAME_BYTES_MAX)], ...],
        Meta(max_length=PROPOSE_COUNT_MAX),
    ]


class Applied(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The sender, in this incarnation, has applied everything up to `index`."""

    incarnation: Number
    index: Number


class Join(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node wants to be a member. Who does not lead sends it on to the leader, once."""

    node: NodeId
    forwarded: bool
    #: Its disk is empty: it has no part in any vote.
    is_new: bool = True


#: Why one is refused that is a voter, and has lost what it knew.
MEMBER_ALREADY = "{} is a member already; forget it before it joins anew"


class JoinRefused(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The node cannot be taken in, for a reason that will not pass by itself."""

    reason: Annotated[str, Meta(max_length=255)]


class Stopped(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The sender takes no part any more in this incarnation, although its links stay."""

    incarnation: Number


Frame = TypeVar("Frame", Propose, Applied, Join, JoinRefused, Stopped)

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[type, msgspec.msgpack.Decoder[object]] = {
    kind: msgspec.msgpack.Decoder(kind) for kind in (Propose, Applied, Join, JoinRefused, Stopped)
}


def encode(frame: Propose | Applied | Join | JoinRefused | Stopped) -> bytes:
    """The payload of a frame."""
    data = bytearray((VERSION,))
    _encoder.encode_into(frame, data, 1)
    return bytes(data)


def decode(kind: type[Frame], payload: bytes) -> Frame:
    """What a payload holds; ProtocolError for anything else."""
    if not 1 < len(payload) <= FRAME_BYTES_MAX + 64:
        raise ProtocolError(f"a control frame of {len(payload)} bytes")
    if payload[0] != VERSION:
        raise ProtocolError(f"a control frame of version {payload[0]}, not {VERSION}")
    try:
        frame = _decoders[kind].decode(memoryview(payload)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProtocolError(f"no {kind.__name__}: {error}") from error
    assert isinstance(frame, kind)
    return frame


def proposals_in_frames(proposals: list[bytes]) -> list[bytes]:
    """The payloads of as few `PROPOSE` frames as it takes."""
    payloads: list[bytes] = []
    first = size = 0
    for number, proposal in enumerate(proposals):
        full = number - first >= PROPOSE_COUNT_MAX or size + len(proposal) > PROPOSE_BYTES
        if full and number > first:
            payloads.append(encode(Propose(tuple(proposals[first:number]))))
            first, size = number, 0
        size += len(proposal)
    payloads.append(encode(Propose(tuple(proposals[first:]))))
    return payloads

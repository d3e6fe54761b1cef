"""The greeting of two nodes: who they are, and that both have the secret of the cluster. No IO.

The dialler says hello, the acceptor says hello, the dialler proves, the acceptor proves, and the
dialler says that it is content; it need not wait after that. A proof is an HMAC-SHA256 over both
hellos, each with a fresh challenge, and over the role of the one who proves, so that neither an
earlier proof nor the other's own is of any use. Whoever does not like what it hears says why, once,
so that the logs of both sides can.

A hello begins with a mark and the version in every version there will be; the rest is MessagePack
whose fields are bounded, and may get more fields at its end.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from enum import IntEnum
from typing import Annotated

import msgspec

VERSION = 1
MARK = b"WARREN"
CHALLENGE_BYTES = 32
PROOF_BYTES = 32
NAME_CHARACTERS_MAX = 255
CLUSTER_ID_CHARACTERS_MAX = 64
#: A greeting frame has at most so many bytes; anything longer is no greeting.
GREETING_BYTES_MAX = 4096

# Kinds of the frames of a greeting, from the link's own range.
HELLO = 1
PROOF = 2
REFUSAL = 3
CONTENT = 7

_PURPOSE = b"warren node proof\0"

#: A frame: its kind and its payload.
Frame = tuple[int, bytes]


class GreetingError(ValueError):
    """What came is no greeting."""


class Role(IntEnum):
    """Who called whom."""

    DIALLER = 1
    ACCEPTOR = 2


class Refusal(IntEnum):
    """Why a node is not let in."""

    OTHER_CLUSTER = 1
    WRONG_SECRET = 2
    UNKNOWN_VERSION = 3
    OLDER_INCARNATION = 4
    NOT_A_MEMBER = 5
    ONESELF = 6
    OTHER_NAME = 7
    UNSPECIFIED = 255

    @property
    def text(self) -> str:
        return _TEXTS[self]


_TEXTS = {
    Refusal.OTHER_CLUSTER: "it belongs to another cluster",
    Refusal.WRONG_SECRET: "the secrets of the two nodes differ",
    Refusal.UNKNOWN_VERSION: "the two nodes speak no common version",
    Refusal.OLDER_INCARNATION: "a newer incarnation of it has been seen",
    Refusal.NOT_A_MEMBER: "it is not a member of the cluster",
    Refusal.ONESELF: "both ends have the same node name",
    Refusal.OTHER_NAME: "a node of another name answers at that address",
    Refusal.UNSPECIFIED: "for a reason that this version does not know",
}


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of itself; `cluster_id` is empty while it has no cluster yet."""

    role: Role
    cluster_id: Annotated[str, msgspec.Meta(max_length=CLUSTER_ID_CHARACTERS_MAX)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARACTERS_MAX)]
    incarnation: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    challenge: Annotated[
        bytes, msgspec.Meta(min_length=CHALLENGE_BYTES, max_length=CHALLENGE_BYTES)
    ]


_decoder = msgspec.msgpack.Decoder(Hello)


def encode_hello(hello: Hello, version: int = VERSION) -> bytes:
    """The payload of a hello frame."""
    return MARK + bytes((version,)) + msgspec.msgpack.encode(hello)


def decode_hello(data: bytes) -> Hello | int:
    """The hello in `data`, or its version when that is not ours; GreetingError when it is none."""
    head = len(MARK) + 1
    if not head <= len(data) <= GREETING_BYTES_MAX or not data.startswith(MARK):
        raise GreetingError("what came is no hello of a node")
    if data[head - 1] != VERSION:
        return data[head - 1]
    try:
        hello = _decoder.decode(memoryview(data)[head:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GreetingError(f"a hello that cannot be read: {error}") from error
    if not hello.name.isprintable():
        # Names go into logs.
        raise GreetingError("a node name with signs that cannot be printed")
    return hello


def make_proof(secret: bytes, role: Role, dialler: bytes, acceptor: bytes) -> bytes:
    """What only a node with the secret can say, in this role, after these two hellos."""
    parts = [_PURPOSE, bytes((role,))]
    for hello in (dialler, acceptor):
        parts += [len(hello).to_bytes(4, "big"), hello]
    return hmac.digest(secret, b"".join(parts), "sha256")


class Greeting:
    """One side of a greeting: frames in, frames out. GreetingError when the other is no node.

    `judge` is asked about a hello only after its sender has proved that it has the secret.
    """

    def __init__(self, own: Hello, secret: bytes, judge: Callable[[Hello], Refusal | None]) -> None:
        if not secret:
            raise ValueError("a cluster needs a secret")
        self._own = own
        self._own_bytes = encode_hello(own)
        self._peer_bytes = b""
        self._secret = secret
        self._judge = judge
        self._is_proved = False
        #: What the other said of itself; not to be believed before `is_done`.
        self.peer: Hello | None = None
        self.is_done = False
        #: Why we do not want the other; it has been told, and the link is over.
        self.refusal: Refusal | None = None
        #: Why the other does not want us.
        self.refused_by_peer: Refusal | None = None

    @property
    def is_over(self) -> bool:
        """It has come to a good end or a bad one."""
        return self.is_done or self.refusal is not None or self.refused_by_peer is not None

    def start(self) -> list[Frame]:
        """What to send first."""
        return [(HELLO, self._own_bytes)] if self._own.role is Role.DIALLER else []

    def take(self, kind: int, payload: bytes) -> list[Frame]:
        """What to answer to a frame."""
        if self.is_over:
            raise GreetingError("a greeting frame after the greeting")
        if kind == REFUSAL:
            self.refused_by_peer = decode_refusal(payload)
            return []
        if kind == HELLO and self.peer is None:
            return self._take_hello(payload)
        if kind == PROOF and self.peer is not None and not self._is_proved:
            return self._take_proof(self.peer, payload)
        if kind == CONTENT and self._is_proved:
            self.is_done = True
            return []
        raise GreetingError(f"a frame of kind {kind} in the middle of the greeting")

    def _take_hello(self, payload: bytes) -> list[Frame]:
        hello = decode_hello(payload)
        if not isinstance(hello, Hello):
            return self._refuse(Refusal.UNKNOWN_VERSION)
        if hello.role is self._own.role:
            raise GreetingError("both sides say that they dialled")
        self.peer = hello
        self._peer_bytes = payload
        if hello.name == self._own.name:
            return self._refuse(Refusal.ONESELF)
        ids = {self._own.cluster_id, hello.cluster_id} - {""}
        if len(ids) > 1:
            return self._refuse(Refusal.OTHER_CLUSTER)
        if self._own.role is Role.DIALLER:
            return [(PROOF, self._proof_of(self._own.role))]
        return [(HELLO, self._own_bytes)]

    def _take_proof(self, peer: Hello, payload: bytes) -> list[Frame]:
        if not hmac.compare_digest(self._proof_of(peer.role), payload):
            return self._refuse(Refusal.WRONG_SECRET)
        refusal = self._judge(peer)
        if refusal is not None:
            return self._refuse(refusal)
        self._is_proved = True
        if self._own.role is Role.ACCEPTOR:
            return [(PROOF, self._proof_of(self._own.role))]
        self.is_done = True
        return [(CONTENT, b"")]

    def _proof_of(self, role: Role) -> bytes:
        hellos = (self._own_bytes, self._peer_bytes)
        if self._own.role is Role.ACCEPTOR:
            hellos = (self._peer_bytes, self._own_bytes)
        return make_proof(self._secret, role, *hellos)

    def _refuse(self, reason: Refusal) -> list[Frame]:
        self.refusal = reason
        return [(REFUSAL, bytes((reason,)))]


def decode_refusal(payload: bytes) -> Refusal:
    """The reason in a refusal; later versions may have more of them."""
    if not payload:
        raise GreetingError("a refusal without a reason")
    try:
        return Refusal(payload[0])
    except ValueError:
        return Refusal.UNSPECIFIED

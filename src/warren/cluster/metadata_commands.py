"""The commands that change what the cluster agrees on, and their answers, as bytes.

A command is a version octet and MessagePack. A node that meets a command of a later version must
stop, not skip it, or its state would part from the others'; so commands of a new version may be
proposed only when every node knows it.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec
from msgspec import Meta

#: The latest version; a command goes out with the first that has it.
VERSION = 3
NodeName = Annotated[str, Meta(min_length=1, max_length=255)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
QueueId = Annotated[str, Meta(min_length=1, max_length=1024)]
ClusterId = Annotated[str, Meta(min_length=1, max_length=64)]
Key = Annotated[str, Meta(max_length=4096)]
Replicas = Annotated[tuple[NodeName, ...], Meta(min_length=1, max_length=64)]


class Kind(enum.IntEnum):
    """What a record is about. Numbers are for ever: they are in logs and snapshots."""

    VHOST = 1
    USER = 2
    PERMISSION = 3
    TOPIC_PERMISSION = 4
    EXCHANGE = 5
    QUEUE = 6
    BINDING = 7
    POLICY = 8
    OPERATOR_POLICY = 9
    PARAMETER = 10
    GLOBAL_PARAMETER = 11
    LIMIT = 12


class _Command(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    pass


class Put(_Command, frozen=True, tag=1):
    """Set a record. `expected` is the version it must have: 0 for not there, None for any."""

    kind: Kind
    key: Key
    value: bytes
    expected: Number | None


class Delete(_Command, frozen=True, tag=2):
    """Remove a record, with the same condition."""

    kind: Kind
    key: Key
    expected: Number | None


class Register(_Command, frozen=True, tag=10):
    """A node has started, with a number higher than ever before.

    `fresh`: with empty disks, or damaged ones; `behind`: the end of its log could not be read.
    """

    node: NodeName
    incarnation: Number
    fresh: bool
    behind: bool = False


class NodeDown(_Command, frozen=True, tag=11):
    """A node of this incarnation is not there any more; `stopped`: it has said so itself."""

    node: NodeName
    incarnation: Number
    stopped: bool = False


class NodeUp(_Command, frozen=True, tag=12):
    """It was there all the time, and can be reached again."""

    node: NodeName
    incarnation: Number


class Forget(_Command, frozen=True, tag=13):
    """A node will not come back."""

    node: NodeName


class Found(_Command, frozen=True, tag=14):
    """Gives the cluster its id; the first one counts."""

    cluster_id: ClusterId


class Drain(_Command, frozen=True, tag=15):
    """A node is taken out of service, or put into it again; since version 2."""

    node: NodeName
    drained: bool


class Life(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A node, from one start of it to the next."""

    node: NodeName
    incarnation: Number


class Witness(_Command, frozen=True, tag=16):
    """One that has what is transient has seen others begin: they have it too; since version 3."""

    by: Life
    seen: Annotated[tuple[Life, ...], Meta(max_length=64)]


class Define(_Command, frozen=True, tag=30):
    """A change of the definitions: its bytes mean something to the engine only."""

    change: bytes


class CreateView(_Command, frozen=True, tag=20):
    """Mirrors for a queue: the first replica has it, and is the master.

    `empty`: the queue has held nothing in this `incarnation` of the first replica (None: ever), so
    all that live are in sync; else the first one alone is.
    """

    queue: QueueId
    replicas: Replicas
    empty: bool = True
    incarnation: Number | None = None


class DropView(_Command, frozen=True, tag=21):
    queue: QueueId
    epoch: Number


class Shrink(_Command, frozen=True, tag=22):
    """A mirror does not keep up: it is not in sync any more."""

    queue: QueueId
    epoch: Number
    node: NodeName


class Expand(_Command, frozen=True, tag=23):
    """A learner has everything: it is in sync."""

    queue: QueueId
    epoch: Number
    node: NodeName


class Handover(_Command, frozen=True, tag=24):
    """Another in-sync replica is to be the master."""

    queue: QueueId
    epoch: Number
    node: NodeName


class UncleanPromote(_Command, frozen=True, tag=25):
    """An operator takes a replica that may lack messages, because no other will come back."""

    queue: QueueId
    epoch: Number
    node: NodeName


class Place(_Command, frozen=True, tag=26):
    """Which nodes are to have replicas from now on, by policy."""

    queue: QueueId
    epoch: Number
    replicas: Replicas


Command = (
    Put
    | Delete
    | Register
    | NodeDown
    | NodeUp
    | Forget
    | Found
    | Drain
    | Witness
    | Define
    | CreateView
    | DropView
    | Shrink
    | Expand
    | Handover
    | UncleanPromote
    | Place
)


class Answer(enum.IntEnum):
    """What a command came to."""

    DONE = 0
    #: Somebody else was faster: version, epoch or incarnation is another by now.
    CONFLICT = 1
    NOT_FOUND = 2
    #: It would break a rule, whoever asks for it and whenever.
    REFUSED = 3
    MALFORMED = 4


class Result(msgspec.Struct, frozen=True, array_like=True):
    """The answer, and the version or epoch that there is now."""

    answer: Answer
    version: int = 0


#: The first version that knows a command, where that is not 1.
_SINCE: dict[type[Command], int] = {Drain: 2, Witness: 3}
_decoder: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_result_decoder = msgspec.msgpack.Decoder(Result)


class UnknownVersionError(Exception):
    """A command of a version that this node does not know. It must stop."""


def encode_command(command: Command) -> bytes:
    return bytes((_SINCE.get(type(command), 1),)) + msgspec.msgpack.encode(command)


def decode_command(data: bytes) -> Command | None:
    """The command, or None for what was never one; all nodes see it alike."""
    if not data:
        return None
    if data[0] > VERSION:
        raise UnknownVersionError(f"command version {data[0]}, this node knows {VERSION}")
    if not data[0]:
        return None
    try:
        return _decoder.decode(memoryview(data)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def encode_result(result: Result) -> bytes:
    return msgspec.msgpack.encode(result)


def decode_result(data: bytes) -> Result:
    return _result_decoder.decode(data)

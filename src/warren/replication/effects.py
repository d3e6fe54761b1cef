"""What a replica wants done. Its owner takes the effects after inputs and carries them out."""

from __future__ import annotations

import msgspec


class Send(msgspec.Struct, frozen=True, gc=False):
    """Send now. It may be lost with its link, but not overtake another frame to that node."""

    to: str
    frame: bytes


class AdoptEpoch(msgspec.Struct, frozen=True, gc=False):
    """Write this epoch to the disk, then call `Replica.epoch_persisted`."""

    epoch: int


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Operations up to here are safe: apply them. The master's producers may be told."""

    index: int


class Promise(msgspec.Struct, frozen=True, gc=False):
    """The master may tell its publishers that operations up to `index` are safe, on its disk alone.

    Nothing else follows from it: they are applied, and delivered, when they are committed.
    """

    index: int


class BecameMaster(msgspec.Struct, frozen=True, gc=False):
    """The queue may be served from now on. All that it was before has been applied.

    `promoted`: another node served it before; consumers are attached anew.
    """

    epoch: int
    promoted: bool


class Deposed(msgspec.Struct, frozen=True, gc=False):
    """Another node is the master, or none: stop serving, forget consumers and publishers."""

    epoch: int


class ProposeShrink(msgspec.Struct, frozen=True, gc=False):
    """Propose that a mirror is not in sync any more.

    `cause`: `lag`, `link` when there is none to it, or `hours` when copies are to rest.
    """

    epoch: int
    node: str
    cause: str


class ProposeExpand(msgspec.Struct, frozen=True, gc=False):
    """Propose that a learner is in sync."""

    epoch: int
    node: str


class ProposeHandover(msgspec.Struct, frozen=True, gc=False):
    """Propose that another replica is the master."""

    epoch: int
    node: str


class ReadChunk(msgspec.Struct, frozen=True, gc=False):
    """Read messages for a copy, then call `Replica.chunk_read` with the same learner and session.

    Wanted are live messages as of the operations applied, with `after < index <= upto`, from the
    first one on, about `bytes_max` of them.
    """

    learner: str
    session: int
    after: int
    upto: int
    bytes_max: int


class SyncProgress(msgspec.Struct, frozen=True, gc=False):
    """A learner has the live messages up to `done`, which is the cursor of a chunk."""

    learner: str
    done: int


class Salvage(msgspec.Struct, frozen=True, gc=False):
    """An operator was told to expect this: the cluster has gone on without what this replica had.

    Live messages and all operations above this index were put aside (`LogPort.salvage`).
    """

    after_index: int


Effect = (
    Send
    | AdoptEpoch
    | Commit
    | Promise
    | BecameMaster
    | Deposed
    | ProposeShrink
    | ProposeExpand
    | ProposeHandover
    | ReadChunk
    | SyncProgress
    | Salvage
)

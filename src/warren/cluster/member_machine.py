"""What a member replicates: the nodes' table and views here, the definitions at the owner's.

A change of the definitions is passed on as an effect in its place in the log; everything else is
decided here. Both are behind `Sessions`, so that each counts once.
"""

from __future__ import annotations

import msgspec

from warren.cluster.member_effects import (
    ApplyDefinition,
    Change,
    MemberEffect,
    NodesChanged,
    RestoreDefinitions,
    ViewsChanged,
)
from warren.cluster.metadata import Metadata
from warren.cluster.metadata_commands import (
    Answer,
    Command,
    Define,
    Drain,
    Forget,
    Handover,
    NodeDown,
    NodeUp,
    Register,
    Result,
    decode_command,
    encode_result,
)
from warren.cluster.raft.types import Membership

IMAGE_VERSION = 1
_DONE = encode_result(Result(Answer.DONE))
_MALFORMED = encode_result(Result(Answer.MALFORMED))
_CHANGES: dict[type[Command], Change] = {
    Register: Change.REGISTERED,
    NodeDown: Change.DOWN,
    NodeUp: Change.UP,
    Forget: Change.FORGOTTEN,
    Drain: Change.DRAINED,
}


class _Image(msgspec.Struct, array_like=True):
    version: int
    metadata: bytes
    leaving: tuple[str, ...]


class MemberImage(msgspec.Struct, array_like=True):
    """A snapshot: the sessions with the machine behind them, and the definitions."""

    version: int
    sessions: bytes
    definitions: bytes


_image_decoder = msgspec.msgpack.Decoder(_Image)
_member_image_decoder = msgspec.msgpack.Decoder(MemberImage)


def encode_image(sessions: bytes, definitions: bytes) -> bytes:
    """The data of a Raft snapshot."""
    return msgspec.msgpack.encode(MemberImage(IMAGE_VERSION, sessions, definitions))


def decode_image(data: bytes) -> MemberImage:
    """What a Raft snapshot holds; ValueError when it is of another version."""
    image = _member_image_decoder.decode(data)
    if image.version != IMAGE_VERSION:
        raise ValueError(f"an image of version {image.version}, not {IMAGE_VERSION}")
    return image


class MemberMachine:
    """The state machine behind the sessions of a member."""

    def __init__(
        self,
        effects: list[MemberEffect],
        definitions_applied: int,
        node: str = "",
        incarnation: int = 0,
    ) -> None:
        """`node` is the one that this is the machine of, in the life with this number."""
        self._node, self._incarnation = node, incarnation
        self.metadata = Metadata()
        #: The members as of the last applied entry.
        self.membership = Membership()
        #: Forgotten nodes that are members still; whoever leads takes them out.
        self.leaving: set[str] = set()
        self.effects = effects
        #: The owner has had everything up to here in an earlier life.
        self._definitions_applied = definitions_applied

    def apply(self, index: int, command: bytes) -> bytes:
        """Apply one command that counts."""
        decoded = decode_command(command)
        if isinstance(decoded, Define):
            if index > self._definitions_applied:
                self.effects.append(ApplyDefinition(index, decoded.change))
            return _DONE
        if decoded is None:
            return _MALFORMED
        return encode_result(self._carry_out(index, decoded))

    def set_membership(self, membership: Membership) -> None:
        """The members have changed, by an entry of the log."""
        self.membership = membership
        self.leaving.intersection_update(membership.nodes)

    def image(self) -> bytes:
        """Everything but the definitions."""
        leaving = tuple(sorted(self.leaving))
        return msgspec.msgpack.encode(_Image(IMAGE_VERSION, self.metadata.image(), leaving))

    def restore(self, image: bytes) -> None:
        """Replace everything but the definitions."""
        loaded = _image_decoder.decode(image)
        if loaded.version != IMAGE_VERSION:
            raise ValueError(f"an image of version {loaded.version}, not {IMAGE_VERSION}")
        self.metadata.restore(loaded.metadata)
        self.leaving = set(loaded.leaving)

    def restored(self, index: int, definitions: bytes) -> None:
        """Tell the owner of an image that was put in place, with everything that it holds."""
        is_news = index > self._definitions_applied
        if is_news:
            self.effects.append(RestoreDefinitions(index, definitions))
        self._tell_views(index)
        if is_news:
            table = dict(self.metadata.nodes())
            self.effects.append(NodesChanged(index, Change.RESTORED, "", table))

    @property
    def counts_as_alive(self) -> bool:
        """Whether this life of this node is in the table, as alive."""
        known = self.metadata.node(self._node)
        return known is not None and known.is_alive and known.incarnation == self._incarnation

    @property
    def bears(self) -> bool:
        """Whether this life of this node has the transient definitions that are in force."""
        return self.metadata.bearers.get(self._node) == self._incarnation

    def _tell_views(self, index: int, planned: bool = False) -> None:
        views = self.metadata.take_changed_views()
        if views:
            self.effects.append(ViewsChanged(index, views, self.counts_as_alive, planned))

    def _carry_out(self, index: int, command: Command) -> Result:
        if isinstance(command, Register) and command.node in self.leaving:
            return Result(Answer.REFUSED)
        era = self.metadata.era
        result = self.metadata.carry_out(index, command)
        if (
            isinstance(command, Forget)
            and result.answer is not Answer.REFUSED
            and command.node in self.membership.nodes
        ):
            # One that never came is forgotten like one that has been there.
            self.leaving.add(command.node)
            result = Result(Answer.DONE)
        self._tell_views(index, planned=isinstance(command, Handover))
        change = _CHANGES.get(type(command))
        if (
            change is not None
            and result.answer is Answer.DONE
            and index > self._definitions_applied
        ):
            node: str = getattr(command, "node")  # noqa: B009 - all in `_CHANGES` have one
            table = dict(self.metadata.nodes())
            ends_era = self.metadata.era > era
            self.effects.append(NodesChanged(index, change, node, table, ends_era))
        return result

"""What a replica needs of the place where its operations are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warren.replication.lineage import Lineage
    from warren.replication.types import Batch


class LogPort(ABC):
    """One queue's log on one node, with the copy of the queue that it leads to.

    Changes are made at once in memory and written in the order of calls; what is on the disk is
    told by `Replica.persisted` with the generation that held when that write was begun. All of it
    is there again after a restart, as far as it was synced.
    """

    #: The epochs of the log; the port keeps it up to date with `append`, `truncate` and `reset`.
    lineage: Lineage
    #: The last operation, the first that can be read, and the last one applied to the copy.
    last_index: int
    first_retained: int
    applied_index: int
    #: The highest epoch that was adopted before this life of the node.
    max_epoch: int
    #: The copy may lack live messages with `gap[0] < index <= gap[1]`.
    gap: tuple[int, int]
    #: What was found after a restart has been read over, so that others may rely on it.
    is_verified: bool = True
    #: Grows with every truncation and reset.
    generation: int

    @property
    @abstractmethod
    def head_index(self) -> int:
        """The oldest message that is live in what was applied; if none is, above all indexes."""

    @abstractmethod
    def append(self, batch: Batch) -> None:
        """Operations that follow the last one. They are not applied yet."""

    @abstractmethod
    def read(self, first: int, bytes_max: int) -> list[Batch]:
        """Operations from `first` on, about `bytes_max` of them, at least one."""

    @abstractmethod
    def truncate(self, after_index: int) -> None:
        """Forget the operations above an index. None of them was applied, unless salvaged."""

    @abstractmethod
    def reset(self, at: int, lineage: Lineage, head: bytes) -> None:
        """Begin anew as a copy that lacks all messages up to `at`, and knows the rest by `head`."""

    @abstractmethod
    def image_head(self) -> bytes:
        """Everything about the queue as of `applied_index`, but its messages."""

    @abstractmethod
    def view_operation(self, epoch: int, promoted: bool) -> bytes:
        """The operation that a master begins its epoch with, as data of a batch."""

    @abstractmethod
    def write_chunk(self, cursor: int, data: bytes, is_last: bool) -> None:
        """Messages of the gap up to `cursor`; it begins there from now on, or is closed.

        What operations did to a message after the chunk was read counts: of those that were
        applied, and of no others.
        """

    @abstractmethod
    def close_gap(self) -> None:
        """The messages that are missing will never come."""

    @abstractmethod
    def salvage(self, after_index: int) -> None:
        """Put aside what is about to go: live messages, and the operations above an index."""

    @abstractmethod
    def salvage_promised(self, after_index: int) -> None:
        """Put aside publishes above an index that publishers may count on, to bring them back."""

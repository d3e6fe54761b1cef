"""Which epochs a log is made of: enough to find where two logs part, without reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Epochs in a frame. Whoever shares none of the last ones gets a full copy.
LINEAGE_MAX = 1_024


class Lineage:
    """Epochs with the index of their first operation, both rising."""

    __slots__ = ("_epochs",)

    def __init__(self, epochs: Iterable[tuple[int, int]] = ()) -> None:
        self._epochs = list(epochs)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._epochs)

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1][0] if self._epochs else 0

    def latest(self, upto: int | None = None) -> tuple[tuple[int, int], ...]:
        """As much as a frame takes, of the epochs that began at or before `upto`."""
        epochs = [one for one in self._epochs if upto is None or one[1] <= upto]
        return tuple(epochs[-LINEAGE_MAX:])

    def epoch_at(self, index: int) -> int:
        """The epoch that an operation was made in; 0 before the first one."""
        for epoch, first in reversed(self._epochs):
            if first <= index:
                return epoch
        return 0

    def extend(self, epoch: int, first: int) -> None:
        """Operations of `epoch` are appended, from `first` on."""
        if epoch > self.last_epoch:
            self._epochs.append((epoch, first))
        elif epoch < self.last_epoch:
            raise ValueError(f"operations of epoch {epoch} after those of {self.last_epoch}")

    def truncate(self, after: int) -> None:
        """Operations above `after` are gone."""
        while self._epochs and self._epochs[-1][1] > after:
            self._epochs.pop()

    def forget_before(self, index: int) -> None:
        """Operations before `index` are not kept any more; the epoch before it stays known."""
        count = sum(1 for _, first in self._epochs if first < index)
        del self._epochs[: max(count - 1, 0)]

    def common(self, last: int, other: Iterable[tuple[int, int]], other_last: int) -> int:
        """The last index up to which this log, which ends at `last`, equals another.

        An epoch has one master and so one history: two logs with operations of the same epoch have
        the same ones, as far as both go, and the same before it.
        """
        mine = dict(self._ends(last))
        firsts = dict(self._epochs)
        at = 0
        for (epoch, first), end in zip(other, _ends_of(other, other_last), strict=True):
            if firsts.get(epoch) == first:
                at = max(at, min(mine[epoch], end))
        return at

    def _ends(self, last: int) -> list[tuple[int, int]]:
        return [
            (epoch, end)
            for (epoch, _), end in zip(self._epochs, _ends_of(self._epochs, last), strict=True)
        ]


def _ends_of(epochs: Iterable[tuple[int, int]], last: int) -> list[int]:
    firsts = [first for _, first in epochs]
    return [*(first - 1 for first in firsts[1:]), last] if firsts else []

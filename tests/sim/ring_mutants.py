"""Rings with one rule switched off each: whatever is needed must be missed when it is gone."""

from __future__ import annotations

from sim.ring_cluster import Rules
from sim.ring_model import ModelLog, State
from sim.ring_queue import SimQueue
from warren.replication import effects
from warren.replication.frames import Chunk, Hello, Token
from warren.replication.replica import Replica
from warren.replication.types import View


class RestartsInsideAnEpoch(Replica):
    """noinc: a restarted process acts in an epoch that began before."""

    def _may_adopt(self, view: View, registered: bool) -> bool:
        floor = self._promised - (self.adopted is None and self._next is None)
        return view.epoch > floor


class CommitsWithoutNewcomer(Replica):
    """nomax: a learner that may be in the ring already is not waited for."""

    def _committable(self) -> int:
        pending, self._pending = self._pending, None
        index = super()._committable()
        self._pending = pending
        return index


class ExpandsByOwnCommit(Replica):
    """nostart: a learner is let in with what this master knows to be committed."""

    def _joins_at(self) -> int:
        return self.commit_index


class CountsOldWrites(Replica):
    """nogen: a sync that began before a truncation counts for what is there now."""

    def _is_present(self, generation: int) -> bool:
        return True


class IsFullTooEarly(Replica):
    """earlyfull: the last chunk counts before it is on the disk."""

    def _say_learned(self) -> None:
        self._is_full_on_disk = True
        super()._say_learned()

    def _on_chunk(self, sender: str, chunk: Chunk) -> None:
        super()._on_chunk(sender, chunk)
        self._say_persisted()


class DoesNotWaitForToken(Replica):
    """Commits what is on the master's own disk."""

    def _committable(self) -> int:
        return self.persisted_index


class ForgetsItsOwnDisk(Replica):
    """Commits what the mirrors have, though what they say does not include the master's disk."""

    def _committable(self) -> int:
        persisted, self._persisted = self._persisted, self.last_index
        index = super()._committable()
        self._persisted = persisted
        return index


class HearsOtherEpochs(Replica):
    """No fence: tokens and operations of other epochs are taken."""

    def _is_of_epoch(self, epoch: int) -> bool:
        return self.epoch > 0

    def _on_hello(self, sender: str, epoch: int, hello: Hello) -> None:
        super()._on_hello(sender, self.epoch or epoch, hello)


class NeverTruncates(Replica):
    """Logs are matched by their length."""

    def _common(self, hello: Hello) -> int:
        return min(hello.last, self.last_index)


class TakesAnyChunk(Replica):
    """Chunks of an earlier copy go into the one that is going on."""

    def _is_of_session(self, chunk: Chunk) -> bool:
        return True

    def chunk_read(
        self, learner: str, session: int, cursor: int, data: bytes, is_last: bool
    ) -> None:
        feed = self._feeds.get(learner)
        super().chunk_read(learner, feed.nonce if feed else 0, cursor, data, is_last)


class AnswersAnyMatch(Replica):
    """No nonce: an answer to an earlier greeting is taken for one to the last."""

    def _on_match(self, sender: str, match: object) -> None:
        self._nonce, nonce = match.nonce or self._nonce, self._nonce  # type: ignore[attr-defined]
        super()._on_match(sender, match)  # type: ignore[arg-type]
        self._nonce = max(self._nonce, nonce)


class CountsUnmatched(Replica):
    """What is on the disk counts before it is known to be what the others have."""

    @property
    def persisted_index(self) -> int:
        return min(self._persisted, self.log.last_index)

    def _hello(self) -> None:
        super()._hello()
        if self._downstream is None and self.role.value == "mirror":
            self._send(self.ring[0], Token(self.persisted_index, 0))


class ForgetsPromotion(Replica):
    """Tells the queue of a promotion only if it is served in that same epoch."""

    def _stand_back(self) -> None:
        super()._stand_back()
        self._is_promotion = False


class ServesAtOnce(Replica):
    """Serves before the first operation of its epoch is committed."""

    def _append_start(self, promoted: bool) -> None:
        super()._append_start(promoted)
        self.is_serving = True
        self._effects.append(effects.BecameMaster(self.epoch, self._is_promotion))


class BuriesTooEarly(ModelLog):
    """tomb: acknowledgements leave tombstones before they are committed."""

    tombstones_when_received = True


class DoesNotFlag(State):
    """Nothing is redelivered after a promotion, as far as it says."""

    flags_at_promotion = False


class IgnoresWatermark(SimQueue):
    """Delivers what no replicated watermark covers."""

    heeds_watermark = False


REPLICAS: tuple[type[Replica], ...] = (
    RestartsInsideAnEpoch,
    CommitsWithoutNewcomer,
    ExpandsByOwnCommit,
    CountsOldWrites,
    IsFullTooEarly,
    DoesNotWaitForToken,
    ForgetsItsOwnDisk,
    HearsOtherEpochs,
    NeverTruncates,
    TakesAnyChunk,
    AnswersAnyMatch,
    CountsUnmatched,
    ForgetsPromotion,
    ServesAtOnce,
)
MUTANTS: dict[str, Rules] = {
    **{mutant.__name__: Rules(replica=mutant) for mutant in REPLICAS},
    "BuriesTooEarly": Rules(log=BuriesTooEarly),
    "DoesNotFlag": Rules(state=DoesNotFlag),
    "IgnoresWatermark": Rules(queue=IgnoresWatermark),
}

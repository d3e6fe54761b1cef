"""The way from upstream: match the log with it, take operations, pass them on, say what is safe."""

from __future__ import annotations

from typing import Any

from warren.replication import effects, frames
from warren.replication.core import NEVER_MS
from warren.replication.feeding import Feeding
from warren.replication.frames import FULL, REPORT, Append, Chunk, Credit, Hello, Match, Token
from warren.replication.lineage import Lineage
from warren.replication.types import ProtocolError, Role


class Mirroring(Feeding):
    """What mirrors and learners do."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._nonce = 0
        self._hello_at_ms = NEVER_MS
        self._hello_wait_ms = 0
        self._report_at_ms = NEVER_MS
        self._told_token = -1

    def _stand_back(self) -> None:
        super()._stand_back()
        self._hello_at_ms = self._report_at_ms = NEVER_MS
        self._told_token = -1

    def _begin_mirroring(self) -> None:
        self._hello_wait_ms = self.settings.hello_ms
        self._report_at_ms = self._now_ms + self.settings.report_ms
        self._hello()

    # -- matching

    def _hello(self) -> None:
        """Ask upstream to go on from what is here."""
        upstream, log = self._upstream, self.log
        if upstream is None:
            return
        if self.role is Role.LEARNER and not self.settings.feeds_mirrors:
            self._is_matched = False
            self._hello_at_ms = NEVER_MS
            return
        self._nonce += 1
        self._is_matched = False
        self._told_token = -1
        self._hello_at_ms = self._now_ms + self._hello_wait_ms
        self._hello_wait_ms = min(self._hello_wait_ms * 2, self.settings.hello_max_ms)
        self._send(upstream, Hello(self._nonce, log.last_index, log.gap, log.lineage.latest()))

    def _on_match(self, sender: str, match: Match) -> None:
        if sender != self._upstream:
            return
        if match.how == frames.AGAIN:
            if self._is_matched:
                self._hello()
            return
        if self._is_matched or match.nonce != self._nonce:
            return  # An answer to an earlier greeting: this log has moved since.
        if match.how == frames.RESET:
            self._reset(match)
        elif not self._truncate(match.at):
            return
        self._is_matched = True
        self._hello_at_ms = NEVER_MS
        self._hello_wait_ms = self.settings.hello_ms
        self._answer_early()
        self._say_persisted()

    def _truncate(self, at: int) -> bool:
        """What upstream does not have was never confirmed, or may be cut off by what was agreed."""
        log = self.log
        if at > log.last_index:
            raise ProtocolError(f"a match at {at}, beyond {log.last_index}")
        if at == log.last_index:
            # Nothing goes: whoever waits to hear what was lost hears that.
            self._salvage(at, at)
            return True
        if at < self.commit_index and self.role is not Role.LEARNER:
            raise ProtocolError(f"a match at {at}, below the commit of {self.commit_index}")
        self._salvage(at, at)
        if at < self.commit_index:
            # What was applied cannot be taken back: the copy begins anew.
            self._begin_anew(0, Lineage(), b"")
            self._hello()
            return False
        self._cut(at)
        return True

    def _cut(self, at: int) -> None:
        """Every later word of the disk about this log must be of the new generation."""
        self.log.truncate(at)
        self._generation = self.log.generation
        self._persisted = min(self._persisted, at)

    def _salvage(self, at: int, promised_at: int) -> None:
        """Keep what an operator has given up by taking a replica that lacked it.

        And what a master has confirmed before others had it, which is not applied here.
        """
        view, log = self.adopted, self.log
        if view is not None and 0 < log.lineage.last_epoch < view.unclean:
            log.salvage(at)
            self._effects.append(effects.Salvage(at))
        else:
            log.salvage_promised(promised_at)

    def _reset(self, match: Match) -> None:
        if self.role is not Role.LEARNER:
            raise ProtocolError("a mirror is told to begin anew")
        # All of it: who was promoted may have been without what stands before the point that both
        # logs share, and nobody can tell.
        self._salvage(0, self.log.applied_index)
        self._begin_anew(match.at, Lineage(match.lineage), match.head)

    def _begin_anew(self, at: int, lineage: Lineage, head: bytes) -> None:
        self.log.reset(at, lineage, head)
        self._generation = self.log.generation
        self._persisted = 0
        self._is_full_on_disk = False
        self.commit_index = at

    def _hours_changed(self) -> None:
        """A learner asks for what it lacks, or for nothing more."""
        if self.role is Role.LEARNER and self.settings.feeds_mirrors != self._is_matched:
            self._hello_wait_ms = self.settings.hello_ms
            self._hello()

    # -- operations

    def _on_append(self, sender: str, append: Append) -> None:
        if not self._is_matched or sender != self._upstream:
            return
        log, batch = self.log, append.batch
        prev = append.prev_index
        if prev > log.last_index or (
            prev >= log.first_retained and log.lineage.epoch_at(prev) != append.prev_epoch
        ):
            self._hello()  # Something was lost on the way.
            return
        is_new = batch is not None and batch.last > log.last_index
        if batch is not None and is_new:
            if batch.first != log.last_index + 1:
                self._hello()
                return
            log.append(batch)
        self._stable_above = max(self._stable_above, min(append.stable, log.last_index))
        self._set_commit(min(append.commit, log.last_index))
        if batch is not None and is_new:
            self._push(batch)
        self._say_persisted()

    def _say_persisted(self) -> None:
        """Pass on how far all are up to here; at the end of the ring, to the master."""
        if not self._is_matched:
            return
        if self.role is Role.LEARNER:
            self._say_learned()
        elif self.role is Role.MIRROR:
            downstream = self._downstream
            if downstream is None:
                if self.stable_index > self._told_token:
                    self._told_token = self.stable_index
                    self._send(self.ring[0], Token(self._told_token, 0))
            elif downstream in self._feeds:
                self._tell(self._feeds[downstream])

    def _say_learned(self) -> None:
        log = self.log
        is_full = self._is_full_on_disk and log.gap[0] >= log.gap[1] and log.is_verified
        told = self.persisted_index * 2 + is_full
        if told != self._told_token:
            self._told_token = told
            self._send(self.ring[0], Token(self.persisted_index, FULL if is_full else 0))

    # -- the copy

    def _is_of_session(self, chunk: Chunk) -> bool:
        """Of the copy that is going on, not of one that an earlier greeting began."""
        return chunk.session == self._nonce

    def _on_chunk(self, sender: str, chunk: Chunk) -> None:
        after, upto = self.log.gap
        is_wanted = self._is_matched and self.role is Role.LEARNER and sender == self._upstream
        if not is_wanted or not self._is_of_session(chunk) or chunk.after != after:
            return
        if after >= upto or chunk.cursor > upto:
            return
        self.log.write_chunk(chunk.cursor, chunk.data, chunk.is_last)
        self._send(sender, Credit(chunk.session, chunk.cursor))

    # -- time

    def _tick_mirroring(self) -> None:
        now_ms = self._now_ms
        if now_ms >= self._hello_at_ms:
            self._hello()
        if self.role is Role.MIRROR and now_ms >= self._report_at_ms:
            self._report_at_ms = now_ms + self.settings.report_ms
            if not self._is_matched or self.commit_index < self.last_index:
                self._send(self.ring[0], Token(self.persisted_index, REPORT))

    def _mirroring_due_ms(self) -> int:
        if self.role is not Role.MIRROR:
            return self._hello_at_ms
        is_busy = not self._is_matched or self.commit_index < self.last_index
        return min(self._hello_at_ms, self._report_at_ms if is_busy else NEVER_MS)

"""The master's part: commit what all have, let learners in, put laggards out, hand over."""

from __future__ import annotations

from collections import deque
from typing import Any

from warren.replication import effects
from warren.replication.core import NEVER_MS
from warren.replication.feed import Feed
from warren.replication.frames import FULL, REPORT, Chunk, Credit, Token
from warren.replication.mirroring import Mirroring
from warren.replication.types import Batch


class Mastering(Mirroring):
    """What a replica does while it is the master."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        #: The operation that this epoch was begun with, and the one to be committed before serving.
        self._start_index = 0
        self._serve_from = 0
        #: Another has served since this replica last did; also if an epoch ended in between.
        self._is_promotion = False
        self.is_serving = False
        #: What came round the ring.
        self._token = 0
        #: What mirrors say of themselves, and whose links are broken.
        self._reports: dict[str, int] = {}
        self._down: set[str] = set()
        self._stalled_ms: int | None = None
        self._look_at_ms = 0
        self._propose_at_ms = 0
        #: A learner that may be in sync already, for all that is known here.
        self._pending: str | None = None
        self._hand_to: str | None = None
        self._is_sync_wanted = False
        self._is_sync_cancelled = False
        #: What is not committed: the last operation of each batch, its bytes, and since when.
        self._window: deque[tuple[int, int, int]] = deque()
        self._window_bytes = 0
        #: What publishers were told of before all have it (`ha-replication` async).
        self._promised_index = 0
        #: Whether publishes say in the log that it may be so; not those up to this index.
        self._promises = self.settings.confirms_early
        self._promise_from = 0
        #: How far those were that are not fed any more.
        self._left_at: dict[str, int] = {}

    def took_office(self) -> None:
        """The queue was served here before it had a ring: its deliveries go on."""
        self._holds_office = True

    @property
    def holds_office(self) -> bool:
        """Whether this is the master, and nobody has let another serve the queue meanwhile."""
        return self._holds_office

    def leave_office(self) -> None:
        """The queue is not served here for a while, though this is the master of its epoch."""
        self._holds_office = False

    def serve_again(self) -> None:
        """As after a promotion: `BecameMaster` comes when a `view` operation is committed."""
        if self.is_master and not self._holds_office:
            self._holds_office = True
            self._append_start(promoted=True)
            self._advance()

    # -- looking

    @property
    def may_append(self) -> bool:
        """Whether operations can be given a place in the log now."""
        return self.is_master

    @property
    def is_handing_over(self) -> bool:
        """Whether another is to be the master."""
        return self._hand_to is not None

    @property
    def is_congested(self) -> bool:
        """More than a window waits to be committed: take nothing more from publishers."""
        return self._window_bytes > self.settings.window_bytes

    @property
    def promised(self) -> int:
        """How many operations publishers count on that are on this node's disk only, for all known.

        This many, at most, a failover would take back.
        """
        return max(0, self._promised_index - self.commit_index)

    @property
    def oldest_ms(self) -> int:
        """Since when the first operation that is not committed has waited; 0: there is none."""
        return self._window[0][2] if self._window else 0

    @property
    def has_enough(self) -> bool:
        """Whether as many replicas are in sync as there must be for anything to be committed."""
        view = self.adopted
        return view is not None and len(view.in_sync) >= self.settings.min_in_sync

    def positions(self) -> dict[str, int]:
        """How far each replica is, as far as the master knows."""
        if not self.is_master or self.adopted is None:
            return {self.node: self.persisted_index}
        known = {node: max(self._reports.get(node, 0), self._token) for node in self.ring[1:]}
        learners = {feed.node: feed.persisted for feed in self._feeds.values() if feed.is_learner}
        left = {
            node: self._left_at[node] for node in self.adopted.learners if node in self._left_at
        }
        return {self.node: self.persisted_index, **left, **known, **learners}

    def gaps(self) -> dict[str, tuple[int, int, int]]:
        """Of learners that lack something: the greeting, and from where to where it is copied."""
        return {
            feed.node: (feed.nonce, feed.cursor, feed.gap_upto)
            for feed in self._feeds.values()
            if self.is_master and feed.is_learner and not feed.is_full
        }

    # -- beginning and end

    def _stand_back(self) -> None:
        self._left_at |= {node: at for node, at in self.positions().items() if node != self.node}
        super()._stand_back()
        self.is_serving = False
        self._token = 0
        self._reports.clear()
        self._stalled_ms = None
        self._propose_at_ms = 0
        self._pending = None
        self._hand_to = None
        self._window.clear()
        self._window_bytes = 0
        self._promised_index = 0

    def _begin_mastering(self) -> None:
        """Its own log is the truth from now on; the first entry says whose it is."""
        if self.log.gap[0] < self.log.gap[1]:
            self.log.close_gap()
        self._is_matched = True
        promoted = not self._holds_office
        self._holds_office = True
        self._append_start(promoted)
        self._start_index = self.last_index
        self._answer_early()

    def _append_start(self, promoted: bool) -> None:
        index = self.last_index + 1
        batch = Batch(index, index, self.epoch, self.log.view_operation(self.epoch, promoted))
        self.log.append(batch)
        self._serve_from = index
        self._is_promotion |= promoted
        self.is_serving = False
        self._took(batch)

    def _took(self, batch: Batch) -> None:
        size = len(batch.data)
        if self._token >= batch.first - 1:
            # From now on the token may stand still.
            self._look_at_ms = self._now_ms + self.settings.report_ms
        self._window.append((batch.last, size, self._now_ms))
        self._window_bytes += size
        self._push(batch)
        if self._tell_commit_ms != NEVER_MS and self._have_heard():
            self._tell_commit_ms = NEVER_MS

    # -- committing

    def _committable(self) -> int:
        """All of the ring have it on their disks, and so has who may be in the ring already."""
        index = self.persisted_index
        if len(self.ring) > 1:
            index = min(index, self._token)
        if self._pending is not None:
            feed = self._feeds.get(self._pending)
            index = min(index, feed.persisted if feed is not None else 0)
        return index

    def _advance(self) -> None:
        if not self.is_master:
            return
        if self.has_enough and self._set_commit(self._committable()):
            while self._window and self._window[0][0] <= self.commit_index:
                self._window_bytes -= self._window.popleft()[1]
            if self._tell_commit_ms == NEVER_MS and self._feeds:
                self._tell_commit_ms = self._now_ms + self.settings.commit_ms
            if not self.is_serving and self.commit_index >= self._serve_from:
                self.is_serving = True
                self._effects.append(effects.BecameMaster(self.epoch, self._is_promotion))
                self._is_promotion = False
        self._promise()
        self._rest()
        self._look_at_learners()
        self._try_hand_over()

    def _policy_on_promises_changed(self) -> None:
        """What is in the log by now does not say that its publisher may be told early."""
        if self.settings.confirms_early is not self._promises:
            self._promises = self.settings.confirms_early
            self._promise_from = self.last_index

    def _rest(self) -> None:
        """Outside of the hours for copies: nobody is kept in sync, and learners get nothing.

        One after the other, for each is a new epoch. Not before this master serves: what it lacks
        to do so is with those that would be sent away.
        """
        if self.settings.feeds_mirrors or not self.is_serving or self._pending is not None:
            return
        for node in [feed.node for feed in self._feeds.values() if feed.is_learner]:
            self._left_at[node] = self._feeds.pop(node).persisted
        if len(self.ring) > 1 and self._now_ms >= self._propose_at_ms:
            self._propose_at_ms = self._now_ms + self.settings.propose_ms
            self._effects.append(effects.ProposeShrink(self.epoch, self.ring[-1], "hours"))

    def _promise(self) -> None:
        """Confirm what is on this disk alone, within the bounds of what may be lost.

        At a bound nothing is confirmed until the others have moved on: so publishers wait, and what
        was confirmed and is not on all disks never is more, or older.
        """
        settings = self.settings
        if not settings.confirms_early or not self.is_serving or not self.has_enough:
            return
        if self._window and self._now_ms - self._window[0][2] > settings.lag_ms_max:
            return
        if self.commit_index < self._promise_from:
            return
        index = min(self.persisted_index, self.commit_index + settings.lag_operations_max)
        if index > max(self._promised_index, self.commit_index):
            self._promised_index = index
            self._effects.append(effects.Promise(index))

    def _on_token(self, sender: str, token: Token) -> None:
        if not self.is_master:
            return
        feed = self._feeds.get(sender)
        if token.flags & REPORT:
            self._reports[sender] = token.stable
        elif feed is not None and feed.is_learner:
            feed.has(min(token.stable, self.last_index))
            feed.is_full = bool(token.flags & FULL)
            self._pump(feed)
            self._advance()
        elif sender == self.ring[-1] and token.stable > self._token:
            self._token = min(token.stable, self.last_index)
            self._stalled_ms = None
            self._advance()

    # -- learners

    def _joins_at(self) -> int:
        """What a learner must have: all that is committed, be it known here or not.

        What this master knows to be committed may be less than what was; all of that is before the
        operation that its epoch began with.
        """
        return max(self.commit_index, self._start_index)

    def _look_at_learners(self) -> None:
        for feed in list(self._feeds.values()):
            if not feed.is_learner:
                continue
            if self._pending is None and feed.is_full and feed.persisted >= self._joins_at():
                self._pending = feed.node
                self._propose_at_ms = self._now_ms + self.settings.propose_ms
                self._effects.append(effects.ProposeExpand(self.epoch, feed.node))
            self._copy(feed)

    @property
    def _goes_on_with_copies(self) -> bool:
        """Not if that could take for ever: this master may never serve without a new mirror."""
        return self.is_serving or self.has_enough

    @property
    def _wants_copies(self) -> bool:
        is_wanted = self._is_sync_wanted or self.settings.sync_automatically
        may_be = self.settings.sync_strategy != "event"
        return is_wanted and may_be and not self._is_sync_cancelled

    @property
    def why_copying(self) -> str:
        """Whose wish it is that learners get what they lack."""
        return "an operator wants it" if self._is_sync_wanted else "it is synchronised by itself"

    @property
    def is_copying(self) -> bool:
        """Whether some learner is given what it lacks, or is to be."""
        return (
            self.is_master
            and self._wants_copies
            and any(feed.is_learner and not feed.is_full for feed in self._feeds.values())
        )

    def _copy(self, feed: Feed) -> None:
        """Go on with the copy, if there is one.

        Not before this master serves, unless the learner began with nothing: what it has applied by
        then includes all that a learner may have applied when it was fed by another.
        """
        if not (self.is_serving or feed.began_anew) or feed.is_copied or feed.is_reading:
            return
        settings = self.settings
        is_gone = self.log.head_index > feed.gap_upto
        if not self._wants_copies and not is_gone:
            return
        if feed.chunks_in_flight < settings.chunks_in_flight:
            feed.is_reading = True
            self._effects.append(
                effects.ReadChunk(
                    feed.node, feed.nonce, feed.cursor, feed.gap_upto, settings.chunk_bytes
                )
            )

    def chunk_read(
        self, learner: str, session: int, cursor: int, data: bytes, is_last: bool
    ) -> None:
        """What a `ReadChunk` asked for: messages up to `cursor`."""
        feed = self._feeds.get(learner)
        if not self.is_master or feed is None or feed.nonce != session or not feed.is_reading:
            return
        feed.is_reading = False
        feed.chunks_in_flight += 1
        self._send(learner, Chunk(session, feed.cursor, cursor, is_last, data))
        feed.cursor, feed.is_copied = cursor, is_last
        self._copy(feed)

    def _on_credit(self, sender: str, credit: Credit) -> None:
        feed = self._feeds.get(sender)
        if self.is_master and feed is not None and feed.nonce == credit.session:
            feed.chunks_in_flight = max(feed.chunks_in_flight - 1, 0)
            self._effects.append(effects.SyncProgress(sender, credit.cursor))
            self._copy(feed)

    # -- laggards

    def _tick_mastering(self) -> None:
        if not self.is_master:
            return
        now_ms = self._now_ms
        if now_ms >= self._look_at_ms:
            self._look_at_ms = now_ms + self.settings.report_ms
        if now_ms >= self._tell_commit_ms:
            self._tell_all()
        if self._pending is not None and now_ms >= self._propose_at_ms:
            self._propose_at_ms = now_ms + self.settings.propose_ms
            self._effects.append(effects.ProposeExpand(self.epoch, self._pending))
        self._look_for_laggards(now_ms)
        self._advance()

    def _look_for_laggards(self, now_ms: int) -> None:
        if self._token >= self.last_index or len(self.ring) == 1:
            self._stalled_ms = None
            return
        if self._stalled_ms is None:
            self._stalled_ms = now_ms
            return
        laggard = self._laggard()
        settings = self.settings
        patience_ms = settings.down_lag_ms if laggard in self._down else settings.max_lag_ms
        if now_ms - self._stalled_ms >= patience_ms and now_ms >= self._propose_at_ms:
            self._propose_at_ms = now_ms + settings.propose_ms
            cause = "link" if laggard in self._down else "lag"
            self._effects.append(effects.ProposeShrink(self.epoch, laggard, cause))

    def _laggard(self) -> str:
        """The first that is not beyond what came round; if all are, the last did not say so."""
        for node in self.ring[1:]:
            if node in self._down or self._reports.get(node, 0) <= self._token:
                return node
        return self.ring[-1]

    def _mastering_due_ms(self) -> int:
        if not self.is_master:
            return NEVER_MS
        due = self._tell_commit_ms
        is_handing = self._hand_to is not None and self.commit_index == self.last_index
        is_resting = not self.settings.feeds_mirrors and len(self.ring) > 1 and self.is_serving
        if self._pending is not None or is_handing or is_resting:
            due = min(due, self._propose_at_ms)
        if len(self.ring) > 1 and self._token < self.last_index:
            due = min(due, self._look_at_ms)
        return due

    # -- handing over

    def _try_hand_over(self) -> None:
        node = self._hand_to
        if node is None or not self.is_serving or self.commit_index < self.last_index:
            return
        if self._propose_at_ms <= self._now_ms and self._pending is None:
            self._propose_at_ms = self._now_ms + self.settings.propose_ms
            self._effects.append(effects.ProposeHandover(self.epoch, node))

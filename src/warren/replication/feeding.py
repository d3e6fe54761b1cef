"""The way down: operations go to the next in the ring and to learners as soon as they are here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.replication import frames
from warren.replication.core import NEVER_MS, Core
from warren.replication.feed import Feed
from warren.replication.types import Batch, Role

if TYPE_CHECKING:
    from warren.replication.frames import Hello


class Feeding(Core):
    """What the master and the mirrors do for those that follow them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._feeds: dict[str, Feed] = {}
        #: Greetings that came too early: of a later epoch, or before this log was matched.
        self._early: dict[str, tuple[int, Hello]] = {}
        self._tell_commit_ms = NEVER_MS

    @property
    def needed_from(self) -> int:
        """The first operation that is still to be sent to somebody."""
        return min((feed.next_index for feed in self._feeds.values()), default=self.last_index + 1)

    def _stand_back(self) -> None:
        super()._stand_back()
        self._feeds.clear()
        self._tell_commit_ms = NEVER_MS

    # -- greetings

    def _on_hello(self, sender: str, epoch: int, hello: Hello) -> None:
        if epoch > self.epoch or not self._is_matched:
            self._keep_early(sender, epoch, hello)
        elif epoch == self.epoch:
            self._greet(sender, hello)

    def _keep_early(self, sender: str, epoch: int, hello: Hello) -> None:
        """Answered when this replica is so far, so that a new ring closes without waiting."""
        is_of_use = epoch > self._promised or self.role is not Role.LEARNER
        kept = self._early.get(sender)
        if epoch >= self._promised and is_of_use and (kept is None or epoch >= kept[0]):
            self._early[sender] = (epoch, hello)

    def _answer_early(self) -> None:
        for sender, (epoch, hello) in list(self._early.items()):
            if epoch <= self.epoch:
                del self._early[sender]
                if epoch == self.epoch:
                    self._greet(sender, hello)

    def _greet(self, sender: str, hello: Hello) -> None:
        """Find out what the two logs share, and send what follows."""
        view, log = self.adopted, self.log
        is_learner = self.is_master and view is not None and sender in view.learners
        if not is_learner and sender != self._downstream:
            return
        if is_learner and not self.settings.feeds_mirrors:
            return  # It asks again when it is time.
        at = self._common(hello)
        gap = hello.gap
        begins_anew = at < log.first_retained - 1
        if is_learner and gap[0] < gap[1] and not self._goes_on_with_copies:
            begins_anew = True
        if is_learner and view is not None and 0 < _last_epoch(hello) < view.unclean:
            # This copy may lack messages that are in the other: equal logs, but not equal queues.
            begins_anew = True
        if is_learner and self._copies_in_full(hello):
            begins_anew = True
        if begins_anew:
            if not is_learner:
                return  # Late: a mirror has got more than that long ago.
            at = log.applied_index
            gap = (0, at)
            match = frames.Match(
                hello.nonce, frames.RESET, at, log.lineage.latest(at), log.image_head()
            )
        else:
            match = frames.Match(hello.nonce, frames.TAIL, at, (), b"")
        feed = Feed(sender, hello.nonce, at + 1, gap, is_learner, begins_anew)
        self._feeds[sender] = feed
        self._send(sender, match)
        self._pump(feed)
        self._tell(feed)

    @property
    def _goes_on_with_copies(self) -> bool:
        """Whether a copy that was begun by another master may be completed."""
        return True

    def _copies_in_full(self, hello: Hello) -> bool:
        """Whether all is to be copied anew; once, and not what is being copied already."""
        is_copied = hello.gap[0] < hello.gap[1] or _last_epoch(hello) >= self.epoch
        return self.settings.sync_strategy == "full" and hello.last > 0 and not is_copied

    def _common(self, hello: Hello) -> int:
        return self.log.lineage.common(self.log.last_index, hello.lineage, hello.last)

    # -- operations

    def _push(self, batch: Batch) -> None:
        """New operations: at once to those that have all before."""
        for feed in list(self._feeds.values()):
            if feed.next_index == batch.first and self._has_room(feed):
                self._send_batch(feed, batch)
            else:
                self._pump(feed)

    def _pump(self, feed: Feed) -> None:
        """Send what is in the log and has not been sent, as much as may be on its way."""
        log = self.log
        while feed.next_index <= log.last_index and self._has_room(feed):
            if feed.next_index < log.first_retained:
                # It was too slow, and what it needs is not kept any more.
                del self._feeds[feed.node]
                self._send(feed.node, frames.Match(0, frames.AGAIN, 0, (), b""))
                return
            for batch in log.read(feed.next_index, self.settings.batch_bytes):
                self._send_batch(feed, batch)

    def _has_room(self, feed: Feed) -> bool:
        return not feed.is_learner or feed.in_flight_bytes < self.settings.learner_window_bytes

    def _send_batch(self, feed: Feed, batch: Batch) -> None:
        self._send_append(feed, batch)
        feed.sent(batch.last, len(batch.data))

    def _send_append(self, feed: Feed, batch: Batch | None) -> None:
        before = feed.next_index - 1
        feed.told_stable, feed.told_commit = self.stable_index, self.commit_index
        self._send(
            feed.node,
            frames.Append(
                self.log.lineage.epoch_at(before),
                before,
                batch,
                feed.told_stable,
                feed.told_commit,
            ),
        )

    def _tell(self, feed: Feed) -> None:
        """How far things are, if that is news to it."""
        is_news = feed.told_commit < self.commit_index or (
            not feed.is_learner and feed.told_stable < self.stable_index
        )
        if is_news:
            self._send_append(feed, None)

    def _have_heard(self) -> bool:
        """Whether the commit has gone along with operations, to all that are fed."""
        return all(feed.told_commit >= self.commit_index for feed in self._feeds.values())

    def _tell_all(self) -> None:
        for feed in self._feeds.values():
            self._tell(feed)
        self._tell_commit_ms = NEVER_MS


def _last_epoch(hello: Hello) -> int:
    return hello.lineage[-1][0] if hello.lineage else 0

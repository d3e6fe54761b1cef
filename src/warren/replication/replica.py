"""One replica of a mirrored queue. Sans-IO: inputs are calls, outputs the effects taken after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.replication import frames
from warren.replication.frames import Append, Chunk, Credit, Hello, Match, Token
from warren.replication.mastering import Mastering
from warren.replication.types import ProtocolError, Role

if TYPE_CHECKING:
    from warren.replication.effects import Effect
    from warren.replication.types import Batch


class Replica(Mastering):
    """The inputs, beside `view`, `epoch_persisted` and `chunk_read`."""

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do, at the latest."""
        return min(self._mirroring_due_ms(), self._mastering_due_ms())

    @property
    def wants_something(self) -> bool:
        """Whether there are effects to be taken."""
        return bool(self._effects)

    def take_effects(self) -> list[Effect]:
        """What is to be done, in order; call it after every input, or after several."""
        taken, self._effects = self._effects, []
        return taken

    def _entered(self) -> None:
        if self.role is Role.MASTER:
            self._begin_mastering()
            self._advance()
        elif self.role in (Role.MIRROR, Role.LEARNER):
            self._begin_mirroring()
        else:
            self._early.clear()

    def appended(self, batch: Batch, now_ms: int = 0) -> None:
        """The master's queue has put these operations at the end of the log; once a turn."""
        self._now_ms = max(self._now_ms, now_ms)
        if not self.is_master or batch.epoch != self.epoch or batch.last != self.last_index:
            raise ValueError("operations that have no place in this epoch")
        self._took(batch)

    def persisted(self, generation: int, index: int, is_full: bool, now_ms: int = 0) -> None:
        """The disk has the log up to `index`, as it was when it had that generation.

        `is_full`: on the disk nothing is missing of the copy.
        """
        self._now_ms = max(self._now_ms, now_ms)
        if not self._is_present(generation):
            return
        self._persisted = max(self._persisted, min(index, self.last_index))
        self._is_full_on_disk = is_full
        if self.is_master:
            self._advance()
        else:
            self._say_persisted()

    def verified(self) -> None:
        """All that was found after a restart has been read: others may rely on it."""
        if not self.is_master:
            self._say_persisted()

    def _is_present(self, generation: int) -> bool:
        """A write that was begun before a truncation says nothing about what is there now."""
        return generation == self._generation

    def receive(self, sender: str, data: bytes, now_ms: int) -> None:
        """A frame has come. ProtocolError if no correct node can have sent it."""
        self._now_ms = max(self._now_ms, now_ms)
        queue, epoch, frame = frames.decode(data)
        if queue != self.queue:
            raise ProtocolError(f"a frame about queue {queue} for {self.queue}")
        if isinstance(frame, Hello):
            self._on_hello(sender, epoch, frame)
        elif self._is_of_epoch(epoch):
            match frame:
                case Append():
                    self._on_append(sender, frame)
                case Token():
                    self._on_token(sender, frame)
                case Match():
                    self._on_match(sender, frame)
                case Chunk():
                    self._on_chunk(sender, frame)
                case Credit():
                    self._on_credit(sender, frame)

    def _is_of_epoch(self, epoch: int) -> bool:
        """Whoever is in another epoch is not heard. That is the fence."""
        return epoch == self.epoch and epoch > 0

    def tick(self, now_ms: int) -> None:
        """Time has passed."""
        self._now_ms = max(self._now_ms, now_ms)
        self._tick_mirroring()
        self._tick_mastering()

    def peer_up(self, node: str) -> None:
        """A link to or from a node is there; what was sent on an earlier one may be lost."""
        self._down.discard(node)
        if node == self._upstream:
            self._hello_wait_ms = self.settings.hello_ms
            self._hello()
        elif node in self.ring[:1]:
            self._told_token = -1
            self._say_persisted()

    def peer_down(self, node: str) -> None:
        """The link is gone."""
        self._down.add(node)

    def start_sync(self) -> None:
        """Copy what learners lack, now (`ha-sync-mode` manual)."""
        self._is_sync_wanted, self._is_sync_cancelled = True, False
        self._advance()

    def cancel_sync(self) -> None:
        """Stop copying. What has arrived stays, and live operations go on."""
        self._is_sync_wanted, self._is_sync_cancelled = False, True

    def settings_changed(self, syncs_again: bool) -> None:
        """The policy is another one: what waited for that goes on.

        `syncs_again`: learners are to be filled by themselves from now on.
        """
        if syncs_again:
            self._is_sync_cancelled = False
        self._hours_changed()
        self._policy_on_promises_changed()
        if self.is_master:
            self._advance()

    def hand_over(self, to: str) -> None:
        """Make another replica the master, once all that was appended is committed.

        Whoever calls this has stopped serving, and has appended what the next one needs to go on.
        """
        self._hand_to = to
        self._propose_at_ms = self._now_ms
        self._advance()

    def cancel_hand_over(self) -> None:
        """Go on as before; serving begins again with `BecameMaster`."""
        if self._hand_to is not None and self.is_master:
            self._hand_to = None
            self._append_start(promoted=False)
            self._advance()

"""Engines that end within a process that goes on: tests with a broker inside have many."""

from __future__ import annotations

import gc
import weakref

from warren.model.ports import JournalPort
from warren.queue.slots import SlotLog


class _Journal(JournalPort):
    """A journal as an engine has one: it knows, by way of the queues, the slots that know it."""

    slots: SlotLog


def test_slots_and_their_journal_go_together() -> None:
    journal = _Journal()
    journal.slots = SlotLog(journal)
    gone = weakref.ref(journal)
    del journal
    gc.collect()
    assert gone() is None, "what slots refer to is not seen by the collector"

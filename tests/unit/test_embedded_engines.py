"""Engines that end within a process that goes on: tests with a broker inside have many."""

from __future__ import annotations

import gc
import weakref

from warren.engine.effects import Effects
from warren.model.message import Address
from warren.model.ports import JournalPort
from warren.queue.queue import Queue
from warren.queue.slots import SlotLog
from warren.wire.content import make_message
from warren.wire.properties import encode_properties


class _Journal(JournalPort):
    """A journal as an engine has one: it knows, by way of the queues, the slots that know it."""

    slots: SlotLog
    queue: Queue


def test_slots_and_their_journal_go_together() -> None:
    journal = _Journal()
    journal.slots = SlotLog(journal)
    gone = weakref.ref(journal)
    del journal
    gc.collect()
    assert gone() is None, "what slots refer to is not seen by the collector"


def test_messages_are_let_go_of_while_all_of_it_is_collected() -> None:
    """Slots give back to their journal what they hold: it must be there until they are gone."""
    journal = _Journal()
    journal.queue = Queue("q", Effects())
    journal.queue.attach(journal)
    for _ in range(300):
        journal.queue.offer(make_message(Address(b"", b"q"), encode_properties({}, 0), b"x"), 100)
    gone = weakref.ref(journal)
    del journal
    gc.collect()
    assert gone() is None

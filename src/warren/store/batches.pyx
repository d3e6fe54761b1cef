"""Messages that come to their queues all at once: written aside first, then named by one record.

The layout of a BATCH record is in docs/internals/wal-format.md.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from warren.model.message cimport Message
from warren.model.ports cimport QueuePort
from warren.store.appender cimport RECORD_HEADER_BYTES
from warren.store.journal cimport BATCH, PLACED, Journal


def place_all(Journal journal not None, list messages not None):
    """Write messages that are in no queue yet; they are needed until `release_all`."""
    cdef Message message
    for message in messages:
        message.place = journal.write_message(PLACED, message, journal.targets, 0)
        journal.retain(message.place, message.body_len)


def release_all(Journal journal not None, list messages not None):
    """They are in queues by now, or never will be."""
    cdef Message message
    for message in messages:
        journal.release(message.place, message.body_len, False)


def begin_batch(Journal journal not None):
    """What is committed until `end_batch` is one record: after a crash all of it, or nothing.

    The messages have been placed; other messages go their own way.
    """
    assert journal.batch is None and not journal.staged
    # The number of messages; `add_entry` counts.
    journal.batch = bytearray(4)


def end_batch(Journal journal not None, list queues not None, bytes operation not None):
    """The batch is in the queues, all of which have done one more operation; its record."""
    cdef bytearray batch = journal.batch
    cdef QueuePort queue
    cdef uint8_t* header
    cdef uint64_t marks[3]
    cdef size_t n
    batch += len(queues).to_bytes(4, "little")
    for queue in queues:
        queue.operations += 1
        marks[0] = queue.queue_id
        marks[1] = queue.epoch
        marks[2] = queue.operations
        batch += (<char*>marks)[:24]
    batch += operation
    journal.batch = None
    n = len(batch)
    header = journal.log.reserve(RECORD_HEADER_BYTES + n)
    memcpy(header + RECORD_HEADER_BYTES, <char*>batch, n)
    journal.seal(header, BATCH, 0, 0, <uint32_t>n)
    journal.commit_mark = journal.log.next_sequence - 1
    return journal.commit_mark

"""Gives the messages of a batch to their queues, all in one turn."""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from warren.model.message cimport Message
from warren.model.ports cimport ACCEPTED, JournalPort, QueuePort
from warren.wire.content cimport scan_content


def offer_all(list messages not None, list targets not None, JournalPort journal, int64_t now_ms):
    """`targets` holds the queues of each message. How many were refused by a queue."""
    cdef Message message
    cdef QueuePort queue
    cdef uint64_t refused = 0
    cdef Py_ssize_t i
    for i in range(len(messages)):
        message = <Message?>messages[i]
        for queue in <tuple>targets[i]:
            if queue.publish(message, now_ms) != ACCEPTED:
                refused += 1
        if journal is not None:
            journal.commit(message)
    return refused


def copy_of(Message message not None):
    """Another one like it, that stands nowhere in the log."""
    cdef Message copy = Message.__new__(Message)
    copy.address = message.address
    copy.allocate(message.header_len, message.body_len)
    memcpy(copy.data, message.data, <size_t>message.header_len + message.body_len)
    scan_content(copy)
    return copy

"""A home tells a gateway which of its queues are congested, so that publishers there pause as here.

Once in a turn, and for each queue once in a pause: a message costs nothing but a look at the queue.
The pause itself is the gateway's affair, and ends by time; whoever goes on publishing to a queue
that is still congested is told again. As with publishers of this node, consumers that got nowhere
in a pause are not waited for again (`QueuePort.pause_ended`).
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from warren.gateway.frames cimport FRAME_CONGESTED, NUMBER_BYTES
from warren.model.ports cimport PeerPort, QueuePort
from warren.wire.octets cimport store32

cdef enum:
    # As long as a link holds a publisher back at a time.
    PAUSE_MS = 10
    # Queues in one frame; the others are found again.
    QUEUES_TOLD_MAX = 4096


@cython.final
cdef class Congestion:
    """See the module's text; one for each link from a gateway."""

    def __cinit__(self):
        self.found = {}
        self.told = {}

    cdef int note(self, uint32_t number, QueuePort queue) except -1:
        """A publish has found its queue congested."""
        if self.newest != number or not self.found:
            self.newest = number
            self.found[number] = queue
        return 0

    cdef int tell(self, PeerPort port, int64_t now_ms) except -1:
        """The turn is over."""
        cdef QueuePort queue
        cdef list numbers = []
        cdef uint8_t* p
        cdef size_t i
        for number, queue in self.found.items():
            told_ms, deliveries = self.told.pop(number, (0, 0))
            if told_ms and now_ms - told_ms < PAUSE_MS:
                self.told[number] = (told_ms, deliveries)
                continue
            if told_ms:
                queue.pause_ended(deliveries, now_ms)
            if queue.congested and len(numbers) < QUEUES_TOLD_MAX:
                numbers.append(number)
                self.told[number] = (now_ms, queue.deliveries)
        self.found.clear()
        if numbers:
            p = port.reserve(FRAME_CONGESTED, len(numbers) * NUMBER_BYTES)
            for i in range(len(numbers)):
                store32(p + i * NUMBER_BYTES, numbers[i])
            port.commit(len(numbers) * NUMBER_BYTES)
        return 0

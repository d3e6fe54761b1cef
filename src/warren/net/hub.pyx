"""What all links of a node share: the loop, the read buffer, and the list of links to be flushed.

A turn is one call from the event loop: bytes that came in, a socket that can be written again, a
timer. All that a turn produces is written at its end, so that replies of one turn leave together.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef enum:
    # Small enough to stay in the second-level cache between reading and parsing.
    READ_BYTES = 262144


cdef int64_t read_us() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


@cython.final
cdef class Hub:
    """See the module's text."""

    def __init__(self, loop, engine):
        self.loop = loop
        self.engine = engine
        self.capacity = READ_BYTES
        self.buffer = <uint8_t*>malloc(self.capacity)
        if self.buffer is NULL:
            raise MemoryError()
        self.turn = engine.turn
        self.turn.read_us = read_us
        self.journal = engine.journal
        self.effects = engine.effects
        self.dirty = []
        self.links = {}
        self.held = {}
        self.resuming = engine.resuming

    def __dealloc__(self):
        free(self.buffer)

    cdef uint8_t* room(self, size_t n) except NULL:
        """The read buffer, at least this large. Its content is lost when it grows."""
        if n > self.capacity:
            free(self.buffer)
            self.capacity = n
            self.buffer = <uint8_t*>malloc(n)
            if self.buffer is NULL:
                self.capacity = 0
                raise MemoryError()
        return self.buffer

    cdef int64_t now_ms(self) noexcept:
        cdef timespec now
        clock_gettime(CLOCK_MONOTONIC, &now)
        self.turn.now_us = <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000

    cdef int note_dirty(self, object link) except -1:
        self.dirty.append(link)
        if self.depth == 0 and not self.flush_scheduled:
            self.flush_scheduled = True
            self.loop.call_soon(self.flush)
        return 0

    cdef int flush_all(self) except -1:
        cdef list links
        if self.resuming:
            self.resume_all()
        if self.effects.pending:
            # Dead letters stand in the log before it hears that they left their queue.
            self.engine.run_effects()
        if self.turn.ending:
            self.turn.end_all()
        if self.journal is not None:
            self.journal.end_turn()
        while self.dirty:
            links = self.dirty
            self.dirty = []
            for link in links:
                try:
                    link.flush()
                except Exception:  # noqa: BLE001 - the others of the list must still be flushed
                    self.engine.log.exception("a link failed while it was flushed")
        return 0

    cdef int resume_all(self) except -1:
        """Errands have ended: their clients go on. The read buffer is free for them now."""
        self.depth += 1
        try:
            while self.resuming:
                actions = self.resuming.copy()
                self.resuming.clear()
                for action in actions:
                    action()
        finally:
            self.depth -= 1
        return 0

    def flush(self):
        """Write everything that waits to be written."""
        self.flush_scheduled = False
        self.flush_all()

    def begin_turn(self):
        if self.depth == 0:
            self.turn.now_ms = self.now_ms()
        self.depth += 1

    def end_turn(self):
        self.depth -= 1
        if self.depth == 0:
            self.flush_all()

    def pump_later(self, queue):
        """A queue has had its share of this turn: it goes on in the next."""
        self.loop.call_soon(self.pump, queue)

    def pump(self, queue):
        self.begin_turn()
        try:
            queue.run(self.turn.now_ms)
        finally:
            self.end_turn()

    def hold(self, queue, link):
        """A link waits for a congested queue."""
        self.held.setdefault(queue, []).append(link)

    def relieved(self, queue):
        """The queue has drained: links that waited for it are read again."""
        for link in self.held.pop(queue, ()):
            link.end_hold(False)

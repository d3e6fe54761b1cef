"""Reads records back from the bytes of a segment, which may be any bytes at all.

No length is believed before it is seen to lie inside the segment and the checksum over it agrees.
What the findings mean (end, torn tail, damage) is decided in `scan.py`.
"""

cimport cython
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp

from warren.store.crc32c cimport crc32c
from warren.store.octets cimport load16, load32, load64

cdef enum:
    RECORD_HEADER_BYTES = 32
    # As in records.py; a longer payload is never appended.
    PAYLOAD_BYTES_MAX = 629145600
    # The search for sound records after damage gives up after checksumming this many times the
    # segment: bytes made to look like headers could keep it busy for days.
    SEARCH_EFFORT = 8
    SEARCH_EFFORT_BYTES_MIN = 1048576


@cython.final
@cython.freelist(1024)
cdef class Record:
    """One record and where it stands."""

    def __init__(self, uint64_t sequence, uint8_t kind, bytes payload not None, uint8_t flags=0,
                 uint32_t queue_id=0, uint64_t epoch=0, uint16_t place=0):
        self.sequence = sequence
        self.kind = kind
        self.payload = payload
        self.flags = flags
        self.queue_id = queue_id
        self.epoch = epoch
        self.place = place

    def contents(self):
        """(kind, payload, flags, queue id, epoch): what the appender gave."""
        return self.kind, self.payload, self.flags, self.queue_id, self.epoch

    def __eq__(self, other):
        """The same number and contents, wherever they stand."""
        return (isinstance(other, Record) and self.sequence == (<Record>other).sequence
                and self.contents() == other.contents())

    def __hash__(self):
        return hash((self.sequence, self.contents()))

    def __repr__(self):
        return (f"Record(sequence={self.sequence}, kind={self.kind}, flags={self.flags}, "
                f"queue_id={self.queue_id}, epoch={self.epoch}, place={self.place}, "
                f"payload={self.payload[:32]!r} of {len(self.payload)} bytes)")


cdef size_t claimed(const uint8_t* data, size_t size, size_t at) noexcept nogil:
    """The size a header at an offset claims for its record; 0 when it cannot be true."""
    cdef size_t length
    if size < RECORD_HEADER_BYTES or at > size - RECORD_HEADER_BYTES:
        return 0
    length = load32(data + at + 4)
    if length > PAYLOAD_BYTES_MAX or length > size - at - RECORD_HEADER_BYTES:
        return 0
    if load64(data + at + 8) == 0:
        return 0
    return RECORD_HEADER_BYTES + length


cdef size_t whole(const uint8_t* data, size_t size, size_t at, uint32_t salt) noexcept nogil:
    """The size of the sound record at an offset; 0 when there is none."""
    cdef size_t n = claimed(data, size, at)
    if n == 0 or crc32c(salt, data + at + 4, n - 4) != load32(data + at):
        return 0
    return n


cdef Record record_at(bytes segment, const uint8_t* data, size_t at):
    cdef Record record = Record.__new__(Record)
    cdef const uint8_t* p = data + at
    record.sequence = load64(p + 8)
    record.kind = p[16]
    record.flags = p[17]
    record.place = load16(p + 18)
    record.queue_id = load32(p + 20)
    record.epoch = load64(p + 24)
    record.offset = at
    record.payload = (<const char*>p)[RECORD_HEADER_BYTES:RECORD_HEADER_BYTES + load32(p + 4)]
    return record


def read_records(bytes segment not None, size_t at, uint64_t expected, size_t count_max,
                 uint32_t salt=0):
    """(sound records in unbroken succession from an offset, the offset behind them)."""
    cdef const uint8_t* data = segment
    cdef size_t size = len(segment)
    cdef size_t n
    cdef list found = []
    while len(found) < count_max:
        n = whole(data, size, at, salt)
        if n == 0 or load64(data + at + 8) != expected:
            break
        found.append(record_at(segment, data, at))
        at += n
        expected += 1
    return found, at


def zeros_from(bytes segment not None, size_t at):
    """Whether there is nothing but zeros from an offset to the end."""
    cdef const uint8_t* data = segment
    cdef size_t size = len(segment)
    if at >= size:
        return True
    # All are equal to the one before, and the first is zero.
    return data[at] == 0 and memcmp(data + at, data + at + 1, size - at - 1) == 0


cdef struct Search:
    const uint8_t* data
    size_t size
    uint64_t lowest      # records outside these numbers are not what is searched for
    uint64_t highest
    uint32_t salt
    size_t effort_left   # bytes that may still be checksummed


cdef bint wanted(Search* search, size_t at) noexcept nogil:
    cdef size_t n = claimed(search.data, search.size, at)
    cdef uint64_t sequence
    if n == 0:
        return False
    sequence = load64(search.data + at + 8)
    if sequence < search.lowest or sequence > search.highest or n > search.effort_left:
        return False
    search.effort_left -= n
    return whole(search.data, search.size, at, search.salt) != 0


cdef size_t next_sound(Search* search, size_t at) noexcept nogil:
    """The offset of the next sound record from an offset on; the segment's size when none is left.

    Where the header at the offset seems sound itself, its length is tried first: a payload may hold
    bytes that look like records.
    """
    cdef size_t n
    if wanted(search, at):
        return at
    n = claimed(search.data, search.size, at)
    if n != 0:
        if wanted(search, at + n):
            return at + n
        if at + n == search.size and load64(search.data + at + 8) == search.lowest:
            return search.size
    while at + RECORD_HEADER_BYTES <= search.size:
        if wanted(search, at):
            return at
        at += 1
    return search.size


cdef void begin(Search* search, bytes segment, uint64_t lowest, uint64_t highest, uint32_t salt):
    search.salt = salt
    search.data = segment
    search.size = len(segment)
    search.lowest = lowest
    search.highest = highest
    search.effort_left = search.size * SEARCH_EFFORT + SEARCH_EFFORT_BYTES_MIN


def find_record(bytes segment not None, size_t at, uint64_t lowest, uint64_t highest,
                uint32_t salt=0):
    """(offset, sequence) of the next sound record numbered within bounds, or None."""
    cdef Search search
    cdef size_t found
    begin(&search, segment, lowest, highest, salt)
    with nogil:
        found = next_sound(&search, at)
    if found >= search.size:
        return None
    return found, load64(search.data + found + 8)


cdef bint shows_synced(Search* search, size_t at) noexcept nogil:
    cdef uint64_t other
    while True:
        at = next_sound(search, at)
        if at >= search.size:
            return False
        other = load64(search.data + at + 8)
        if (other == search.lowest
                or other - search.lowest > load16(search.data + at + 18)):
            return True
        at += RECORD_HEADER_BYTES + <size_t>load32(search.data + at + 4)


def proves_synced(bytes segment not None, size_t at, uint64_t sequence, uint64_t highest,
                  uint32_t salt=0):
    """Whether anything from an offset on shows that a record had been synced, or stands there.

    A record names how many before it were not yet synced when it was written; all earlier ones
    were. The record itself, found behind bytes that are no record, shows that they are foreign:
    an append that was not finished leaves nothing before its first record.
    """
    cdef Search search
    cdef bint shown
    begin(&search, segment, sequence, highest, salt)
    with nogil:
        shown = shows_synced(&search, at)
    return shown

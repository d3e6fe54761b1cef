"""Consumers by number, found without making an object of the number.

The low bits of a number are a place in the table, the others count how often that place was given
away: a number is not used again for a long time, so a late frame does not hit a newcomer.
"""

cimport cython
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc

cdef enum:
    PLACE_BITS = 20
    PLACE_MASK = 1048575
    FIRST_ROOM = 16
    # How often a place is given away before its numbers come again.
    TURNS_MAX = 4095


@cython.final
cdef class Numbered:
    """No number is 0."""

    def __cinit__(self):
        self.items = []
        self.free_numbers = []

    def __dealloc__(self):
        free(self.numbers)

    cdef object at(self, uint32_t number):
        """Whose number it is; None when it is nobody's."""
        cdef size_t place = number & PLACE_MASK
        if place < <size_t>len(self.items) and self.numbers[place] == number:
            return self.items[place]
        return None

    cdef int make_room(self, size_t n) except -1:
        cdef uint32_t* grown
        cdef size_t room = self.room if self.room else FIRST_ROOM
        while room < n:
            room *= 2
        if room != self.room:
            grown = <uint32_t*>realloc(self.numbers, room * sizeof(uint32_t))
            if grown is NULL:
                raise MemoryError()
            self.numbers = grown
            self.room = room
        return 0

    cdef int put(self, uint32_t number, object item) except -1:
        """Under a number that somebody else has chosen."""
        cdef size_t place = number & PLACE_MASK
        if number == 0 or (place < <size_t>len(self.items) and self.items[place] is not None):
            raise ValueError(f"consumer number {number} is taken")
        self.make_room(place + 1)
        while <size_t>len(self.items) <= place:
            self.numbers[len(self.items)] = 0
            self.items.append(None)
        self.items[place] = item
        self.numbers[place] = number
        return 0

    def next_number(self):
        """A number for somebody to come; `give_up` when nobody does."""
        cdef uint32_t number
        if self.free_numbers:
            number = self.free_numbers.pop()
        elif len(self.items) > PLACE_MASK:
            raise ValueError("too many consumers")
        else:
            number = <uint32_t>len(self.items) | 1 << PLACE_BITS
        self.put(number, None)
        return number

    def remove(self, uint32_t number):
        """Nobody has this number any more; who had it, or None."""
        item = self.at(number)
        if item is not None:
            self.items[number & PLACE_MASK] = None
            self.numbers[number & PLACE_MASK] = 0
        return item

    def give_up(self, uint32_t number):
        """A number of `next_number` is no longer needed; who had it, or None."""
        cdef size_t place = number & PLACE_MASK
        if place >= <size_t>len(self.items) or self.numbers[place] != number:
            return None
        item = self.items[place]
        self.items[place] = None
        self.numbers[place] = 0
        self.free_numbers.append(
            <uint32_t>place | ((number >> PLACE_BITS) % TURNS_MAX + 1) << PLACE_BITS)
        return item

    def occupant(self, uint32_t number):
        """Whose place a number would take; None: it is free."""
        cdef size_t place = number & PLACE_MASK
        return self.items[place] if place < <size_t>len(self.items) else None

    def all(self):
        """(number, item) of all."""
        return [(self.numbers[i], item) for i, item in enumerate(self.items) if item is not None]

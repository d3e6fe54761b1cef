from libc.stdint cimport uint64_t

from warren.model.ports cimport PublisherPort, TurnClock


cdef class BurialAnswers(PublisherPort):
    cdef TurnClock turn
    cdef object on_answers
    cdef uint64_t last_tag
    cdef dict waiting     # tag -> answers that are still to come
    cdef set refused      # tags of which a part was refused
    cdef list given       # (tag, whether it was accepted), not taken yet
    cdef bint due

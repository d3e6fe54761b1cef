from libc.stdint cimport uint8_t, uint32_t

from warren.model.message cimport Address, Message
from warren.model.ports cimport PeerPort

cdef int write_message(PeerPort port, int kind, const uint8_t* head, size_t head_len,
                       Message message, bytes address, const uint32_t* numbers,
                       size_t count) except -1
cdef int write_payload(PeerPort port, int kind, const uint8_t* head, size_t head_len,
                       bytes payload) except -1
cdef bytes whole_address(Address address)


cdef class Incoming:
    cdef Message message       # the newest; not to be used before it is whole
    cdef readonly bint whole
    cdef size_t size           # of content header and body
    cdef size_t filled
    cdef size_t room
    cdef Address last
    cdef bytes last_octets     # the address that led to it
    cdef dict known            # others, by their octets

    cdef size_t begin(self, const uint8_t* p, size_t n) except 0
    cdef size_t go_on(self, const uint8_t* p, size_t n) except 0
    cdef int grow(self, size_t wanted) except -1
    cdef Address find_address(self, const uint8_t* p, size_t n)
    cdef int check(self) except -1


cdef class IncomingPayload:
    cdef size_t size
    cdef size_t filled
    cdef list pieces

    cdef int begin(self, size_t size, const uint8_t* p, size_t n) except -1
    cdef int go_on(self, const uint8_t* p, size_t n) except -1
    cdef bytes take(self)

"""Takes the ring frames of a link from another node and gives them on whole."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from warren.model.ports cimport RING_KINDS, FrameSink

from warren.replication.frames import FRAME_BYTES_MAX

cdef enum:
    WHOLE = RING_KINDS        # a frame, or the last piece of one
    PIECE = RING_KINDS + 1    # a piece that is not the last

#: The kinds for those who send.
RING_WHOLE = WHOLE
RING_PIECE = PIECE


@cython.final
cdef class RingSink(FrameSink):
    """`take(peer, frame)` for each; ValueError from it: the peer is broken."""

    cdef str peer
    cdef object take
    cdef list pieces
    cdef size_t pieces_bytes

    def __init__(self, str peer not None, take):
        self.peer = peer
        self.take = take
        self.pieces = []

    cdef int take_frame(self, int kind, const uint8_t* payload, size_t n) except -1:
        frame = PyBytes_FromStringAndSize(<const char*>payload, <Py_ssize_t>n)
        if kind == PIECE or self.pieces_bytes:
            self.pieces_bytes += n
            if self.pieces_bytes > FRAME_BYTES_MAX:
                raise ValueError(f"pieces of a ring frame of {self.pieces_bytes} bytes")
            self.pieces.append(frame)
            if kind == PIECE:
                return 0
            frame = b"".join(self.pieces)
            self.pieces = []
            self.pieces_bytes = 0
        if kind != WHOLE:
            raise ValueError(f"no ring sends frame {kind}")
        self.take(self.peer, frame)
        return 0

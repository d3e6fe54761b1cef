from warren.net.peers.peer_link cimport PeerLink


cdef class StreamPeerLink(PeerLink):
    cdef object transport
    cdef bint paused

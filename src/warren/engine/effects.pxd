from warren.model.ports cimport QueueEffects


cdef class Effects(QueueEffects):
    cdef readonly list dead_letters    # (queue, message, number of the reason, slot or -1)
    cdef readonly list expiries        # (queue, time in ms)
    cdef public object on_relieved     # called with a queue that publishers need no longer spare
    cdef public object on_queue        # called with each queue that is made; None: nobody asks
    cdef public object on_postponed    # called with a queue to be pumped in the next turn

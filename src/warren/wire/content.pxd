from warren.model.message cimport Message


cdef int scan_content(Message message) noexcept nogil

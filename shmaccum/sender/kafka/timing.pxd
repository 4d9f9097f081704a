from shmaccum.sender.kafka.fastcalls cimport FastCalls

cdef FastCalls _fast_calls

cpdef double monotonic_ms()

cpdef double monotonic_ms()

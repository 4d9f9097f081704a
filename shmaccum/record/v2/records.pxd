cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t
from shmaccum.record.v2.fastheader cimport FastHeader

cdef Py_ssize_t _FEW
cdef tuple _SIZES
cdef FastHeader _fast_header

@cython.locals(size=Py_ssize_t, key_size=bytes, value_size=bytes)
cpdef bytes encode_body(key, value, headers)

@cython.locals(later="long long", delta=bytes, offset=bytes, size=Py_ssize_t)
cpdef bytes encode_record(Py_ssize_t offset_delta, timestamp, base_timestamp, bytes body)

cpdef write_header(
    buf, Py_ssize_t size, int16_t attributes, int32_t record_count, int64_t base_timestamp, int64_t max_timestamp,
    int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, tuple rest=*,
)

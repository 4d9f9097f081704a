from shmaccum.accumulator.append.futures cimport FutureRecordMetadata, ProduceRequestResult

cpdef FutureRecordMetadata new_future(
    ProduceRequestResult result, Py_ssize_t index, long long timestamp, unsigned long long sizes
)

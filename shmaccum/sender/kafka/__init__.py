"""The transport to brokers.

`shmaccum.kafka` has the wire format of all requests but Produce. The connections send batches without a copy, share one
wait with the doorbell, and keep no reference to a slot beyond the answer to its batch.
"""

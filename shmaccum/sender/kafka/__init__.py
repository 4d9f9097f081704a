"""The transport to brokers.

kafka-python supplies the wire format of all requests but Produce. The connections are our own: they send batches
without a copy, share one wait with the doorbell, and keep no reference to a slot beyond the answer to its batch.
"""

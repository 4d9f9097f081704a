"""The slab: shared memory, its layout, crash-safe locks, processes and their liveness.

It connects to no broker and encodes no record. Of Kafka it has only numbers in words that others fill: topic and
producer ids, error codes, sequence numbers (`layout`).
"""

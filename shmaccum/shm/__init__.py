"""The slab: shared memory, its layout, crash-safe locks, processes and their liveness.

Nothing here depends on Kafka.
"""

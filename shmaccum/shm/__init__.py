"""The slab: shared memory, its layout, locks that survive their holder, processes and their liveness.

Nothing here knows of Kafka.
"""

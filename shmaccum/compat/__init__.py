"""Programs of other clients, moved by a changed import: kafka-python's producer, and confluent-kafka's.

Each module translates settings, arguments, callbacks and errors to `shmaccum.Producer`, and implements nothing a second
time. docs/compat.md lists what differs.
"""

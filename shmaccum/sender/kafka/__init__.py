"""The sender's transport to brokers, over the connections of `shmaccum.kafka`.

It sends batches without a copy, shares one wait with the doorbell, and keeps no reference to a slot beyond the answer
to its batch.
"""

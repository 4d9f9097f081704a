"""The transport that speaks to brokers.

kafka-python supplies the wire format of all requests but one, the choice of their versions, and SASL. What is written
here is what shmaccum exists for: sockets that take batches out of the slab without a copy, one wait for all of them
and the doorbell, and the certainty that nothing refers to a slot any more once its batch is answered.
"""

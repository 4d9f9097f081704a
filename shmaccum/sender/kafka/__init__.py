"""The transport that sends to brokers.

kafka-python supplies the wire format of all requests but Produce. The connections are our own. They send batches out of
the slab without a copy, one wait covers them and the doorbell, and no reference to a slot outlives its batch's answer.
"""

"""The log transport: writes Kafka's on-disk log, for machines without a broker.

Start at `shmaccum.sender.log.log_transport`. Tools that read Kafka's log directories read these.
"""

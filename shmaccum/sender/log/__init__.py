"""The log transport: batches go into Kafka's own on-disk log, for machines without a broker.

Start at `shmaccum.sender.log.log_transport`. What it writes, a broker could have written: any tool that reads
Kafka's log directories reads these.
"""

"""Compares shmaccum with its peers: same records, settings, machine and run.

Contestants are shmaccum (`send`, and `send_batch` for columns), confluent-kafka, kafka-python, aiokafka, and Spark's
own Kafka sink. shmaccum is that of this source tree, with the core that `make core` has compiled. Brokers are Apache
Kafka and a sink that only acknowledges, each in processes of its own.

A case has variants. In each, every contestant has a turn in every round, after a warm-up round that does not count. A
turn uses new processes. They connect, send some records, and wait for each other. The measurement begins when the tool
starts them all, and ends with the last acknowledgement of the last one. Processor time is that of *all* processes of
the contestant (workers, our sender, Spark's JVM), including those that have exited; the broker's is separate. The
result is the median of the rounds, with quartiles. Ratios compare turns of the same round; the result is their median.

Every record is counted: by the acknowledgements that the contestant saw, if it keeps them, and by the records in the
broker at the end. Missing or surplus records make the variant void.
"""

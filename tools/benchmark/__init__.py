"""Measures shmaccum beside its peers: the same records, the same settings, the same machine, the same run.

Contestants are shmaccum (`send`, and `send_batch` for columns), confluent-kafka, kafka-python, aiokafka, and Spark's
own Kafka sink. shmaccum is measured as pip installs it, which is compiled where there is a C compiler (into
build/compiled, a minute, if it is not there yet), and here and there as plain Python, too. Brokers are Apache Kafka,
and a sink that only acknowledges, each in processes of its own.

How a figure comes about. A case has variants; in each, every contestant has its turn in every round, after a round of
warm-up that does not count. A turn is made of fresh processes: they connect and send some records first, wait for each
other, and what is measured begins when all are told to go, and ends when the last of them has its last
acknowledgement. Processor time is that of *all* processes that the contestant is made of (workers, our sender, Spark's
JVM), those that ended included; the broker's is kept apart. What comes out is the median of the rounds, with quartiles;
ratios are of the same round, and the median of them.

Every record is counted: by the acknowledgements that the contestant saw, where it keeps them, and by what the broker
has in the end. A turn after which records are missing, or too many, makes the variant void.
"""

"""Jobs as people write them for Spark's own Kafka sink, run with ``format("kafka")`` and with ``format("shmaccum")``.

Every job runs twice against one Apache Kafka, with fresh topics each time and one word changed. confluent-kafka then
reads the topics. Compared are keys, values, headers, the partition and the order where the job defines them, and the
errors where a job is refused. Records that are there too often or not at all are counted for both.
"""

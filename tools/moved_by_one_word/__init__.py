"""Runs users' jobs for Spark's own Kafka sink with ``format("kafka")`` and ``format("shmaccum")``.

Every job runs twice against one Apache Kafka, with fresh topics each time and one word changed. confluent-kafka then
reads the topics. Compared are keys, values, headers, the partition and the order where the job defines them, and the
errors where a job is refused. Duplicate and missing records are counted for both.
"""

"""Kafka's protocol: the messages that we use, and their codec. Nothing here knows of the slab, or does I/O."""

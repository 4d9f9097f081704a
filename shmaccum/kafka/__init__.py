"""Kafka's protocol: messages and their codec, connections and logins. Nothing here knows of the slab."""

"""Settings of gunicorn; add --preload to load the application before the fork."""

workers = 2
bind = "127.0.0.1:8000"


def worker_exit(server, worker):
    """Wait for acknowledgements before a worker leaves.

    Only a container needs this: it ends with its first process, and its sender with it.
    """
    from app import producer

    producer.close(timeout=20)

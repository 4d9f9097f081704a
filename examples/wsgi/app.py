"""A WSGI application that accepts orders: one request, one record.

gunicorn -c gunicorn.conf.py app
uwsgi --ini uwsgi.ini --http-socket 127.0.0.1:8000
"""

import os

from shmaccum import Producer
from shmaccum.errors import ShmaccumError

# Before the server forks (--preload, uWSGI) or in each worker: both work. Forked workers go on with this producer.
producer = Producer.from_file(os.environ.get("PRODUCER_PROPERTIES", "../producer.properties"))


def application(environ, start_response):
    """Accept the order in the path: POST /orders/NUMBER."""
    order = environ["PATH_INFO"].removeprefix("/orders/")
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    try:
        producer.send("orders", body, key=order)  # returns when the record is in shared memory
    except ShmaccumError as error:  # not accepted: the slab is full, or the topic unknown; the client can try again
        start_response("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [f"{error}\n".encode()]
    start_response("202 Accepted", [("Content-Type", "text/plain")])
    return [f"accepted by {os.getpid()}\n".encode()]

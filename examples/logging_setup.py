"""A program of several processes that logs to Kafka, and to standard error.

python logging_setup.py
"""

import logging.config
import multiprocessing
import os

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(processName)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {
        "kafka": {
            "class": "shmaccum.logging.KafkaHandler",
            "topic": "logs",
            "config": os.environ.get("PRODUCER_PROPERTIES", "producer.properties"),
            "key": "%(processName)s",
            "on_full": "drop",  # never waits for memory; "block" waits up to max.block.ms
            "formatter": "line",
        },
        "console": {"class": "logging.StreamHandler", "formatter": "line", "level": "WARNING"},
    },
    "root": {"level": "INFO", "handlers": ["kafka", "console"]},
}


def work(worker, lines):
    """Log some lines. Forked processes inherit the set-up; with spawn, call dictConfig here first."""
    log = logging.getLogger("orders")
    for number in range(lines):
        log.info("line %d of worker %d", number, worker)
        print("logged", f"{worker}-{number}", os.getpid(), "dropped", dropped(), flush=True)


def dropped():
    """Return how many log records of this process were not accepted."""
    return logging.getLogger().handlers[0].dropped


if __name__ == "__main__":
    logging.config.dictConfig(LOGGING)
    logging.info("starting")
    fork = multiprocessing.get_context("fork")
    lines = int(os.environ.get("LINES", "1000"))
    processes = [fork.Process(target=work, args=(worker, lines)) for worker in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    logging.info("ended")  # logging.shutdown then waits for acknowledgements, up to 5 s

"""Settings of Celery: queues and results as files here, so that the example needs no server. Put your broker here."""

from pathlib import Path

queue, results = Path("queue").absolute(), Path("results").absolute()
for directory in (queue, results):
    directory.mkdir(exist_ok=True)

broker_url = "filesystem://"
broker_transport_options = {
    "data_folder_in": str(queue),
    "data_folder_out": str(queue),
    "control_folder": str(queue),
    "polling_interval": 0.05,
}
result_backend = results.as_uri()

# A task whose child was killed runs again: its record can then be there twice, under the same key.
task_acks_late = True
task_reject_on_worker_lost = True

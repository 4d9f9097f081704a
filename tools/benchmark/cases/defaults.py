"""Cases 12 to 14, each client with its own defaults: calls that are waited for, far brokers, the first producer."""

from __future__ import annotations

import compileall
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools.benchmark.brokers import APACHE, FAR, MOCK, SINK, TITLES, TLS, authority
from tools.benchmark.cases.base import Case, Variant, plural
from tools.benchmark.cases.sending import MEGABYTE, figures_of
from tools.benchmark.contestants import CONFLUENT, OURS
from tools.benchmark.environment import Environment, Member, Work
from tools.benchmark.load import make_values
from tools.benchmark.settings import SENDER_IDLE_MS, Settings
from tools.benchmark.statistics import quantile

_FULL_QUEUE_WAIT_S: Final = 0.01

# --- 12: calls ----------------------------------------------------------------------------------------------

_ALONE: Final = 3_000
_POLLED: Final = 300_000
_WARM_UP: Final = 500
_VALUE: Final = bytes(100)


def _calls(environment: Environment) -> Sequence[Variant]:
    """Return a program that waits for each record, and one of confluent-kafka's that polls after each.

    The second one runs unchanged, by `shmaccum.compat.confluent`.
    """
    return [
        _of_calls(environment, "alone", "one at a time, without lingering", _ALONE),
        _of_calls(environment, "polled", "`produce` with a callback, then `poll(0)`", _POLLED),
    ]


def _of_calls(environment: Environment, name: str, title: str, at_full_scale: int) -> Variant:
    count = environment.count(at_full_scale)

    def turn(contestant: str) -> dict[str, float]:
        broker = environment.broker(SINK)
        with environment.topic(broker, 1) as topic:
            send_all = _alone if name == "alone" else _polled
            measured = environment.measure(broker, [partial(send_all, contestant, broker.servers, topic, count)])
            environment.check_delivered(broker, topic, _WARM_UP + count)
        (report,) = measured.reports
        shares = {"p50_ms": 0.5, "p99_ms": 0.99} if report.result else {}
        latencies = {figure: quantile(report.result, share) * 1000 for figure, share in shares.items()}
        return figures_of(measured, count, count * len(_VALUE), Settings()) | latencies

    latencies = ("p50_ms", "p99_ms") if name == "alone" else ()
    return Variant(
        name,
        title,
        (OURS, CONFLUENT),
        turn,
        figures=(*latencies, "records_per_s", "cpu_us_per_record"),
        broker=SINK,
        facts={"records": count, "value_size": len(_VALUE), "partitions": 1},
    )


def _alone(contestant: str, servers: str, topic: str, count: int, member: Member) -> None:
    """Send records without lingering, each when the one before is acknowledged; the result is their seconds."""
    settings: dict[str, Any] = {"bootstrap.servers": servers, "linger.ms": 0}
    acknowledged: list[object] = []
    if contestant == OURS:
        from shmaccum import Producer

        ours = Producer(settings | {"sender.idle.ms": SENDER_IDLE_MS})

        def send() -> None:
            ours.send(topic, _VALUE, partition=0).get()
    else:
        import confluent_kafka

        theirs = confluent_kafka.Producer(settings | {"enable.idempotence": True})

        def send() -> None:
            acknowledged.clear()
            theirs.produce(topic, _VALUE, partition=0, on_delivery=lambda error, _: acknowledged.append(error))
            while not acknowledged:
                theirs.poll(1.0)

    for _ in range(_WARM_UP):
        send()
    member.wait_for_go()
    seconds = []
    for _ in range(count):
        began = time.perf_counter()
        send()
        seconds.append(time.perf_counter() - began)
    member.done(seconds)
    if contestant == OURS:
        ours.close()


def _polled(contestant: str, servers: str, topic: str, count: int, member: Member) -> None:
    """Run a program of confluent-kafka's."""
    if contestant == OURS:
        from shmaccum.compat import confluent as library
    else:
        import confluent_kafka as library  # type: ignore[no-redef]

    own = {"sender.idle.ms": SENDER_IDLE_MS} if contestant == OURS else {}
    producer = library.Producer({"bootstrap.servers": servers} | own)
    failed: list[object] = []

    def note(error: object, _: object) -> None:
        if error:
            failed.append(error)

    for some in (_WARM_UP, count):
        for _ in range(some):
            while True:
                try:
                    producer.produce(topic, _VALUE, callback=note)
                    break
                except BufferError:
                    producer.poll(_FULL_QUEUE_WAIT_S)
            producer.poll(0)
        producer.flush()
        assert not failed, failed
        if some == _WARM_UP:
            member.wait_for_go()
    member.done([])


# --- 13: distance -------------------------------------------------------------------------------------------

_SIZE: Final = 1000
_PRODUCERS: Final = 8
_SECONDS: Final = 4.0
_PARTITIONS: Final = 4
"""The mock cluster's topics have no others."""
_IN_A_ROW: Final = 100
"""Records between two looks at the clock."""


def _distance(environment: Environment) -> Sequence[Variant]:
    """Return eight producers on brokers that answer late; with compression; with TLS, also for one producer."""
    near, far = MOCK[0], MOCK[20]
    combinations = [*itertools.product((*MOCK.values(), APACHE, *FAR.values()), ("none",), (_PRODUCERS,))]
    combinations += itertools.product((near, far), ("zstd", "lz4"), (_PRODUCERS,))
    combinations += itertools.product((TLS,), ("none", "zstd", "lz4"), (_PRODUCERS, 1))
    return [_of_distance(environment, *each) for each in environment.some(combinations, 13)]


def _of_distance(environment: Environment, kind: str, compression: str, producers: int) -> Variant:
    seconds = environment.seconds(_SECONDS)

    def turn(contestant: str) -> dict[str, float]:
        broker = environment.broker(kind)
        ca = authority(environment.directory, kind)
        with environment.topic(broker, _PARTITIONS) as topic:
            works: list[Work] = [
                partial(_for_some_time, contestant, broker.servers, ca, topic, compression, seconds, number)
                for number in range(producers)
            ]
            measured = environment.measure(broker, works)
        sent = sum(report.result for report in measured.reports)
        figures = figures_of(measured, max(1, sent), max(1, sent) * _SIZE, Settings())
        return figures | {"mb_per_s": sent * _SIZE / seconds / MEGABYTE}

    return Variant(
        f"{kind}-{compression}-{producers}",
        f"{plural(producers, 'producer')}, compression {compression}, into {TITLES[kind]}",
        (OURS, CONFLUENT),
        turn,
        figures=("mb_per_s", "cpu_us_per_record"),
        broker=kind,
        facts={"producers": producers, "value_size": _SIZE, "partitions": _PARTITIONS, "seconds": seconds},
        rounds_at_most=3,
    )


def _for_some_time(
    contestant: str, servers: str, ca: str, topic: str, compression: str, seconds: float, number: int, member: Member
) -> None:
    """Send records as fast as possible for some time; the result is how many are acknowledged within it."""
    values = [os.urandom(_SIZE)] if compression == "none" else make_values(2000, _SIZE)
    settings: dict[str, Any] = {"bootstrap.servers": servers, "compression.type": compression}
    if ca:
        settings["security.protocol"] = "SSL"
    count = 0

    def note(error: object, _: object) -> None:
        nonlocal count
        count += error is None

    producer: Any
    if contestant == OURS:
        from shmaccum import Producer

        trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca} if ca else {}
        producer = Producer(settings | trust | {"sender.idle.ms": SENDER_IDLE_MS})
        producer.partitions_for(topic)
        send = producer.send
    else:
        import confluent_kafka

        trust = {"ssl.ca.location": ca} if ca else {}
        producer = confluent_kafka.Producer(settings | trust | {"enable.idempotence": True, "log_level": 0})
        producer.list_topics(topic, timeout=10)
        send = producer.produce
    member.wait_for_go()
    while time.monotonic() < member.began_s + seconds:
        for index in range(number, number + _IN_A_ROW):
            while True:
                try:
                    send(topic, values[index % len(values)], partition=index % _PARTITIONS, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(_FULL_QUEUE_WAIT_S)
        number += _IN_A_ROW
        if contestant != OURS:
            producer.poll(0)
    producer.poll(0)
    member.done(count)
    os._exit(0)  # what is not acknowledged does not count


# --- 14: start ----------------------------------------------------------------------------------------------

_MEASURED: Final = """
import json, sys, time
def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_Dirty:"))
memory, began = private(), time.perf_counter()
{program}
took = time.perf_counter() - began
print(json.dumps({{"wall_s": took, "memory_mb": (private() - memory) * 1024 / 1e6}}))
"""
_FIRST: Final = {
    OURS: "import shmaccum; producer = shmaccum.Producer(json.loads(sys.argv[1]))",
    CONFLUENT: (
        "import confluent_kafka\n"
        "producer = confluent_kafka.Producer({'bootstrap.servers': 'localhost:1', 'log_level': 0})"
    ),
}


def _start(environment: Environment) -> Iterator[Variant]:
    """Yield what a process pays before its first record, on a slab that has a sender."""

    def turn(contestant: str) -> dict[str, float]:
        import shmaccum

        compileall.compile_dir(Path(shmaccum.__file__).parent, quiet=1)  # as installed packages are
        name = environment.new_name()
        settings = {"transport": "log", "log.dir": str(environment.directory / name), "shmaccum.name": name}

        def hold(member: Member) -> None:
            with shmaccum.Producer(settings | {"sender.idle.ms": SENDER_IDLE_MS}) as holder:
                holder.send("t", b"1").get(30)
                variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
                command = [sys.executable, "-c", _MEASURED.format(program=_FIRST[contestant]), json.dumps(settings)]
                member.wait_for_go()
                member.done(
                    json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, env=variables).stdout)
                )

        (report,) = environment.measure(None, [hold]).reports
        figures: dict[str, float] = report.result
        return figures

    title = "import, and first producer: time and private memory"
    yield Variant("start", title, (OURS, CONFLUENT), turn, ("wall_s", "memory_mb"))


CALLS: Final = Case(12, "calls", "Programs that wait for each call, or poll after it", _calls)
DISTANCE: Final = Case(13, "distance", "Brokers that answer late", _distance)
START: Final = Case(14, "start", "The first producer of a process", lambda environment: [*_start(environment)])

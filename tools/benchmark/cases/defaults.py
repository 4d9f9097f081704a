"""Cases 12 to 14, each client with its own defaults: calls that are waited for, far brokers, the first producer."""

from __future__ import annotations

import compileall
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from tools.benchmark.brokers import APACHE, FAR, MOCK, SINK, TITLES, TLS, WINDOW, authority
from tools.benchmark.cases.base import Case, Variant, plural
from tools.benchmark.cases.sending import MEGABYTE, NORMAL, QUANTILES, Sent, figures_of, measure, quantiles
from tools.benchmark.contestants import CONFLUENT, OURS
from tools.benchmark.environment import Environment, Member, Work
from tools.benchmark.load import make_values
from tools.benchmark.settings import SENDER_IDLE_MS

_FULL_QUEUE_WAIT_S: Final = 0.01


def _producer(contestant: str, settings: dict[str, Any]) -> Any:
    """Return a producer with its own defaults besides these settings."""
    if contestant == OURS:
        from shmaccum import Producer

        return Producer(settings | {"sender.idle.ms": SENDER_IDLE_MS})
    import confluent_kafka

    return confluent_kafka.Producer(settings | {"enable.idempotence": True, "log_level": 0})


# --- 12: calls ----------------------------------------------------------------------------------------------

_ALONE: Final = 3_000
_POLLED: Final = 300_000
_WARM_UP: Final = 500
_VALUE: Final = bytes(100)


def _calls(environment: Environment) -> Sequence[Variant]:
    """Return a program that waits for each record, and one of confluent-kafka's that polls after each.

    The second one runs unchanged, by `shmaccum.compat.confluent`.
    """

    def variant(name: str, title: str, at_full_scale: int) -> Variant:
        count = environment.count(at_full_scale)

        def turn(contestant: str) -> dict[str, float]:
            def works(servers: str, topic: str) -> list[Work]:
                return [partial(_alone if name == "alone" else _polled, contestant, servers, topic, count)]

            figures, (sent,) = measure(environment, SINK, works, NORMAL, 1)
            return figures | quantiles(sent.latencies_ns, QUANTILES)

        figures = (*(QUANTILES if name == "alone" else ()), "records_per_s", "cpu_us_per_record")
        facts = {"records": count, "value_size": len(_VALUE), "partitions": 1}
        return Variant(name, title, (OURS, CONFLUENT), turn, figures, SINK, facts=facts)

    return [
        variant("alone", "one at a time, without lingering", _ALONE),
        variant("polled", "`produce` with a callback, then `poll(0)`", _POLLED),
    ]


def _alone(contestant: str, servers: str, topic: str, count: int, member: Member) -> None:
    """Send records without lingering, each when the one before is acknowledged."""
    producer = _producer(contestant, {"bootstrap.servers": servers, "linger.ms": 0})
    acknowledged: list[object] = []

    def ours() -> None:
        producer.send(topic, _VALUE, partition=0).get()

    def theirs() -> None:
        acknowledged.clear()
        producer.produce(topic, _VALUE, partition=0, on_delivery=lambda error, _: acknowledged.append(error))
        while not acknowledged:
            producer.poll(1.0)

    send = ours if contestant == OURS else theirs
    for _ in range(_WARM_UP):
        send()
    member.wait_for_go()
    latencies_ns = []
    for _ in range(count):
        began = time.perf_counter_ns()
        send()
        latencies_ns.append(time.perf_counter_ns() - began)
    member.done(_sent(count, latencies_ns))
    if contestant == OURS:
        producer.close()


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
    member.done(_sent(count))


def _sent(count: int, latencies_ns: Sequence[int] = ()) -> Sent:
    return Sent(count, count * len(_VALUE), _WARM_UP, None, latencies_ns)


# --- 13: distance -------------------------------------------------------------------------------------------

_SIZE: Final = 1000
_LARGE: Final = 100_000
_PRODUCERS: Final = 8
_SECONDS: Final = 4.0
_PARTITIONS: Final = 4
"""The mock cluster's topics have no others."""
_IN_A_ROW: Final = 100_000
"""Bytes between two looks at the clock."""


def _distance(environment: Environment) -> Sequence[Variant]:
    """Return eight producers on brokers that answer late; with compression or large records; with TLS."""
    near, far = MOCK[0], MOCK[20]
    combinations = [*itertools.product((*MOCK.values(), APACHE, *FAR.values()), ("none",), (_PRODUCERS,), (_SIZE,))]
    combinations += itertools.product((near, far), ("zstd", "lz4"), (_PRODUCERS,), (_SIZE,))
    combinations += itertools.product((near, far, APACHE), ("none",), (_PRODUCERS,), (_LARGE,))
    combinations += itertools.product(WINDOW.values(), ("none",), (_PRODUCERS, 1), (_SIZE,))
    combinations += itertools.product((TLS,), ("none", "zstd", "lz4"), (_PRODUCERS, 1), (_SIZE,))
    return [_of_distance(environment, *each) for each in environment.some(combinations, 13)]


def _of_distance(environment: Environment, kind: str, compression: str, producers: int, size: int) -> Variant:
    seconds = environment.seconds(_SECONDS)

    def turn(contestant: str) -> dict[str, float]:
        broker = environment.broker(kind)
        settings = {"bootstrap.servers": broker.servers, "compression.type": compression}
        if ca := authority(environment.directory, kind):
            trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
            settings |= {"security.protocol": "SSL"} | (trust if contestant == OURS else {"ssl.ca.location": ca})
        with environment.topic(broker, _PARTITIONS) as topic:
            sending = partial(_for_some_time, contestant, settings, topic, seconds, size)
            measured = environment.measure(broker, [partial(sending, number) for number in range(producers)])
        sent = sum(report.result for report in measured.reports)
        figures = figures_of(measured, max(1, sent), max(1, sent) * size, NORMAL)
        return figures | {"mb_per_s": sent * size / seconds / MEGABYTE}

    return Variant(
        f"{kind}-{compression}-{producers}" + ("-large" if size == _LARGE else ""),
        f"{plural(producers, 'producer')}, compression {compression}, "
        + (f"records of {size // 1000} kB, " if size == _LARGE else "")
        + f"into {TITLES[kind]}",
        (OURS, CONFLUENT),
        turn,
        figures=("mb_per_s", "cpu_us_per_record"),
        broker=kind,
        facts={"producers": producers, "value_size": size, "partitions": _PARTITIONS, "seconds": seconds},
        rounds_at_most=3,
    )


def _for_some_time(
    contestant: str, settings: dict[str, Any], topic: str, seconds: float, size: int, number: int, member: Member
) -> None:
    """Send records as fast as possible for some time; the result is how many are acknowledged within it."""
    is_random = settings["compression.type"] == "none"
    values = [os.urandom(size)] if is_random else make_values(2000, size)
    in_a_row = _IN_A_ROW // size
    count = 0

    def note(error: object, _: object) -> None:
        nonlocal count
        count += error is None

    producer = _producer(contestant, settings)
    if contestant == OURS:
        producer.partitions_for(topic)
        send = producer.send
    else:
        producer.list_topics(topic, timeout=10)
        send = producer.produce
    member.wait_for_go()
    while time.monotonic() < member.began_s + seconds:
        for index in range(number, number + in_a_row):
            while True:
                try:
                    send(topic, values[index % len(values)], partition=index % _PARTITIONS, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(_FULL_QUEUE_WAIT_S)
        number += in_a_row
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


def _start(environment: Environment) -> Sequence[Variant]:
    """Return what a process pays before its first record, on a slab that has a sender."""

    def turn(contestant: str) -> dict[str, float]:
        import shmaccum

        compileall.compile_dir(Path(shmaccum.__file__).parent, quiet=1)  # as installed packages are
        name = environment.new_name()
        settings = {"transport": "log", "log.dir": str(environment.directory / name), "shmaccum.name": name}
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        command = [sys.executable, "-c", _MEASURED.format(program=_FIRST[contestant]), json.dumps(settings)]

        def hold(member: Member) -> None:
            with shmaccum.Producer(settings | {"sender.idle.ms": SENDER_IDLE_MS}) as holder:
                holder.send("t", b"1").get(30)
                member.wait_for_go()
                member.done(json.loads(subprocess.check_output(command, env=variables)))

        (report,) = environment.measure(None, [hold]).reports
        figures: dict[str, float] = report.result
        return figures

    title = "import, and first producer: time and private memory"
    return [Variant("start", title, (OURS, CONFLUENT), turn, ("wall_s", "memory_mb"))]


CALLS: Final = Case(12, "calls", "Programs that wait for each call, or poll after it", _calls)
DISTANCE: Final = Case(13, "distance", "Brokers that answer late", _distance)
START: Final = Case(14, "start", "The first producer of a process", _start)

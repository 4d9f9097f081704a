"""Case 11: many processes against threads that share Kafka's own producer in one JVM."""

from __future__ import annotations

import io
import json
import struct
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import cycle, islice, repeat
from pathlib import Path
from typing import IO, Any, Final

from shmaccum.cli.demo.flights import load_flights
from tools.benchmark.brokers import APACHE, FIVE, SINK, TITLES
from tools.benchmark.cases.base import Case, Variant, plural
from tools.benchmark.cases.sending import NORMAL, MakeLoad, Sent, measure, send
from tools.benchmark.contestants import CONFLUENT, CONFLUENT_DEFAULTS, OURS
from tools.benchmark.contestants import JVM as IN_JVM
from tools.benchmark.environment import Environment, Member, Work
from tools.benchmark.errors import BenchmarkError, MissingError
from tools.benchmark.load import Load, make_values
from tools.benchmark.settings import Settings, by_kafkas_names
from tools.kafka.cluster import ensure_kafka
from tools.kafka.errors import KafkaMissingError
from tools.kafka.jvm import class_path, java_program

PRODUCERS: Final = 8
RECORDS: Final = 1_000_000
"""Of each producer."""
VALUE_SIZE: Final = 100
REAL_RECORDS: Final = 200_000
"""Likewise."""
FLIGHTS: Final = 50_000
"""They repeat."""
REAL_PARTITIONS: Final = 60
MANY_PARTITIONS: Final = 100
_REGISTRY_HEADER: Final = b"\0\0\0\0\1"
"""In front of a value whose schema, number 1 here, is in a registry."""
_FIGURES: Final = ("records_per_core_s", "records_per_s", "cpu_us_per_record", "batches_per_mb", "memory_mb")

_Records = Callable[[int], tuple[list[bytes], list[bytes] | None]]
"""Returns the first values from outside, and their keys, if they have some."""


def _variants(environment: Environment) -> Sequence[Variant]:
    """Return variants with made-up records of one size and with real ones."""
    flights = (_json_flights, "flights", "flights as JSON")
    real: list[tuple[str, _Records, str, str, str]] = [
        (kind, *flights, codec) for kind in (SINK, APACHE) for codec in ("none", "zstd")
    ]
    real += [(APACHE, _avro_flights, "avro", "flights as Avro", "none"), (FIVE, *flights, "none")]
    if (file := environment.lines) is not None:
        lines = (partial(_lines, file), "lines", f"lines of {file.name}")
        real += [(APACHE, *lines, codec) for codec in ("none", "zstd")]
    made_up = [("together", PRODUCERS, PRODUCERS), ("many-partitions", 1, MANY_PARTITIONS)]
    variants = [*(_made_up(environment, *each) for each in made_up), *(_real(environment, *each) for each in real)]
    return environment.some(variants, 2)


def _made_up(environment: Environment, name: str, producers: int, partitions: int) -> Variant:
    count = environment.count(RECORDS)
    return _variant(
        environment,
        name,
        f"{plural(producers, 'producer')} of {count:,} records of {VALUE_SIZE} bytes, {partitions} partitions",
        (OURS, IN_JVM),
        lambda _, topic, number: Load(topic, make_values(count, VALUE_SIZE)),
        SINK,
        {"producers": producers, "records_each": count, "value_size": VALUE_SIZE, "partitions": partitions},
    )


def _real(
    environment: Environment,
    kind: str,
    records: _Records,
    name: str,
    words: str,
    compression: str,
) -> Variant:
    """Return a variant with at most `FLIGHTS` different records from outside, which repeat."""
    count, producers = environment.count(REAL_RECORDS), PRODUCERS // 2

    def load(contestant: str, topic: str, number: int) -> Load:
        values, keys = records(min(count, FLIGHTS))
        return Load(topic, list(islice(cycle(values), count)), keys and list(islice(cycle(keys), count)))

    return _variant(
        environment,
        f"{kind}-{name}-{compression}",
        f"{producers} producers of {count:,} {words}, {compression}, into {TITLES[kind]}",
        (OURS, IN_JVM, CONFLUENT, CONFLUENT_DEFAULTS),
        load,
        kind,
        {"producers": producers, "records_each": count, "partitions": REAL_PARTITIONS},
        Settings(compression_type=compression),
    )


def _variant(
    environment: Environment,
    name: str,
    title: str,
    contestants: Sequence[str],
    load: MakeLoad,
    kind: str,
    facts: dict[str, int],
    settings: Settings = NORMAL,
) -> Variant:
    """Return a variant with the facts' numbers of producers and partitions; in the JVM, threads are the producers."""
    producers, partitions = facts["producers"], facts["partitions"]

    def turn(contestant: str) -> dict[str, float]:
        if contestant != IN_JVM:
            return send(environment, kind, contestant, settings, load, partitions, producers)

        def works(servers: str, topic: str) -> list[Work]:
            make_load = partial(load, contestant, topic, 0)
            return [sending_in_jvm(servers, settings, environment.directory, make_load, threads=producers)]

        return measure(environment, kind, works, settings, partitions)[0]

    figures = _FIGURES if kind == SINK else _FIGURES[:3]
    return Variant(name, title, contestants, turn, figures, kind, settings, facts)


def _json_flights(count: int) -> tuple[list[bytes], list[bytes]]:
    """Return flights as JSON, keyed by carrier and number, as `shmaccum demo` sends them."""
    rows = load_flights(count).to_pylist()
    values = [json.dumps({name: cell for name, cell in row.items() if cell is not None}).encode() for row in rows]
    return values, _flight_keys(rows)


def _avro_flights(count: int) -> tuple[list[bytes], list[bytes]]:
    """Return flights as Avro, keyed likewise."""
    import fastavro

    rows = load_flights(count).to_pylist()
    kinds = {str: "string", int: "long", float: "double"}
    cells = {name: next((row[name] for row in rows if row[name] is not None), "") for name in rows[0]}
    fields = [{"name": name, "type": ["null", kinds[type(cell)]]} for name, cell in cells.items()]
    schema = fastavro.parse_schema({"type": "record", "name": "Flight", "fields": fields})
    values = []
    for row in rows:
        value = io.BytesIO()
        fastavro.schemaless_writer(value, schema, row)
        values.append(_REGISTRY_HEADER + value.getvalue())
    return values, _flight_keys(rows)


def _flight_keys(rows: list[dict[str, Any]]) -> list[bytes]:
    return [f"{row['carrier']}{row['flight']}".encode() for row in rows]


def _lines(file: Path, count: int) -> tuple[list[bytes], None]:
    """Return the first lines of a file, without keys."""
    with file.open("rb") as lines:
        return [line.rstrip(b"\r\n") for line in islice(lines, count)], None


# --- in the JVM ---------------------------------------------------------------------------------------------

SOURCE: Final = Path(__file__).parents[1].joinpath("JvmProducer.java")
_WARM_UP_SHARE: Final = 0.2
"""More than the others': the JVM compiles what it runs often."""
_OPTIONS: Final = ("-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_COMPILER: Final = "org.codehaus.janino.SimpleCompiler"
_COMPILER_JARS: Final = ("janino-*.jar", "commons-compiler-*.jar")
_SERIALIZER: Final = "org.apache.kafka.common.serialization.ByteArraySerializer"
_LENGTH: Final = struct.Struct(">i")


def sending_in_jvm(
    servers: str, settings: Settings, directory: Path, make_load: Callable[[], Load], *, threads: int
) -> Work:
    """Return the work of sending a load by each of some threads; its result is a `Sent`."""
    try:
        ensure_kafka()
    except KafkaMissingError as error:
        raise MissingError(str(error)) from error
    command = [java_program(), *_OPTIONS, "-cp", f"{class_path()}:{_compiler()}", _COMPILER]

    def work(member: Member) -> None:
        load = make_load()
        warm_up = int(load.count * _WARM_UP_SHARE)
        serializers = {f"{part}.serializer": _SERIALIZER for part in ("key", "value")}
        properties = by_kafkas_names(settings) | {"bootstrap.servers": servers} | serializers
        settings_file, records_file = directory / f"{load.topic}.properties", directory / f"{load.topic}.records"
        settings_file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        with records_file.open("wb") as file:
            write_records(load, file)
        program = [SOURCE, "JvmProducer", settings_file, load.topic, records_file, load.count, threads, warm_up]
        with subprocess.Popen(
            [*command, *map(str, program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as process:
            assert process.stdin is not None
            _next_line(process)
            member.wait_for_go()
            process.stdin.write("\n")
            acknowledged = int(_next_line(process))
            member.done(Sent(threads * load.count, threads * load.size, threads * warm_up, acknowledged))
            process.stdin.write("\n")

    return work


def _compiler() -> str:
    """Return where a JVM finds the Java compiler that Spark has for its generated code."""
    spark = find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        raise MissingError("pyspark, whose Java compiler is needed, is not installed")
    jars = Path(spark.submodule_search_locations[0], "jars")
    return ":".join(str(path) for pattern in _COMPILER_JARS for path in jars.glob(pattern))


def write_records(load: Load, file: IO[bytes]) -> None:
    """Write the load's records, each once if they repeat, as the program reads them."""
    records = list(dict.fromkeys(zip(load.values, load.keys or repeat(None), strict=False)))
    file.write(_LENGTH.pack(len(records)))
    for value, key in records:
        file.write(_LENGTH.pack(-1) if key is None else _LENGTH.pack(len(key)) + key)
        file.write(_LENGTH.pack(len(value)) + value)


def _next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if line := process.stdout.readline().strip():
        return line
    raise BenchmarkError("the JVM has ended")


JVM: Final = Case(11, "jvm", "N processes against N threads of a JVM", _variants)

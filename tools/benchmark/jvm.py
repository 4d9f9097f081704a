"""Kafka's own producer in a JVM: a process whose threads share it, which is a `Work` of its own."""

from __future__ import annotations

import itertools
import struct
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

from tools.benchmark.cases.sending import Sent
from tools.benchmark.environment import Member, Work
from tools.benchmark.errors import BenchmarkError, MissingError
from tools.benchmark.load import Load
from tools.benchmark.settings import Settings, by_kafkas_names
from tools.kafka.cluster import ensure_kafka
from tools.kafka.errors import KafkaMissingError
from tools.kafka.jvm import class_path, java_program

SOURCE: Final = Path(__file__).with_name("JvmProducer.java")
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
    """Return the work of sending a load by each of so many threads; its result is a `Sent`.

    Args:
        servers: ``bootstrap.servers``.
        settings: the same for all.
        directory: for the program's files.
        make_load: returns the load; its values repeat from the first on if there are fewer.
        threads: number of threads.
    """
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
            _next_line(process)
            member.wait_for_go()
            _go_on(process)
            acknowledged = int(_next_line(process))
            member.done(Sent(threads * load.count, threads * load.size, threads * warm_up, acknowledged))
            _go_on(process)

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
    records = list(dict.fromkeys(zip(load.values, load.keys or itertools.repeat(None), strict=False)))
    file.write(_LENGTH.pack(len(records)))
    for value, key in records:
        file.write(_LENGTH.pack(-1) if key is None else _LENGTH.pack(len(key)) + key)
        file.write(_LENGTH.pack(len(value)) + value)


def _next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise BenchmarkError("the JVM has ended")
    return line


def _go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from fixture_types import Capture, MonkeyPatch
from record_batches import Sample, fill, seal

from shmaccum._core import ProduceBatch
from shmaccum.cli.main import main
from shmaccum.cluster import TopicPartition
from shmaccum.record.compression import CompressionType
from shmaccum.record.format import record_format
from shmaccum.sender.log.log_transport import NODE, LogTransport

Fields: TypeAlias = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

COMMAND = [sys.executable, "-m", "shmaccum", "dump"]


class Writer:
    """Writes a log as the sender does."""

    def __init__(self, log_dir: Path, num_partitions: int = 1, segment_bytes: int = 1 << 30, magic: int = 2) -> None:
        self._transport = LogTransport(log_dir, num_partitions, segment_bytes, 1 << 62, 1 << 62, magic)
        self._transport.start()
        self._format = record_format(magic)

    def write(
        self,
        *records: Fields,
        topic: str = "t",
        partition: int = 0,
        compression: CompressionType = CompressionType.NONE,
    ) -> None:
        """Write one batch; record ``i`` has timestamp ``1000 + i``."""
        form = self._format
        samples = [Sample(*fields, 1000 + i) for i, fields in enumerate(records)]
        payload = seal(form, fill(form, samples), samples, compression)
        self._transport.request_update([topic])
        to = TopicPartition(topic, partition)
        self._transport.send(
            NODE, [ProduceBatch(to, (payload,), len(records), form.magic, -1, -1, -1, 999 + len(records), 0)], 0
        )
        (response,) = self._transport.poll(0, -1)
        assert response.message == ""

    def values(self, *values: bytes, topic: str = "t", partition: int = 0) -> None:
        """Write one batch of records that have nothing but a value."""
        self.write(*((None, value, ()) for value in values), topic=topic, partition=partition)

    def close(self) -> None:
        self._transport.close()


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def segment(log_dir: Path) -> Path:
    """Return the first file of partition 0."""
    return log_dir / "t-0" / "00000000000000000000.log"


@pytest.fixture
def writer(log_dir: Path) -> Iterator[Writer]:
    writer = Writer(log_dir, num_partitions=2)
    yield writer
    writer.close()


def run(*argv: str | Path) -> int:
    return main(["dump", *map(str, argv)])


def out_lines(capfd: Capture) -> list[str]:
    """What was printed, which must all be records."""
    captured = capfd.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


# --- what is shown -------------------------------------------------------------------------------


def test_a_record_is_a_line_of_columns(log_dir: Path, writer: Writer, capfd: Capture) -> None:
    assert run(log_dir) == 0
    assert out_lines(capfd) == []
    writer.write((b"key", "wört".encode(), (("a", b"1"), ("b", None))), (None, None, ()))
    writer.write((b"", b"", ()))
    assert run(log_dir) == 0
    assert out_lines(capfd) == [
        "t-0\t0\t1000\tkey\twört\ta:1,b:null",
        "t-0\t1\t1001\tnull\tnull\t",
        "t-0\t2\t1000\t\t\t",
    ]


def test_control_characters_are_escaped(log_dir: Path, writer: Writer, capfd: Capture) -> None:
    shown = {
        b"one line\nand\tanother\r": r"one line\nand\tanother\r",
        b"back\\slash": r"back\\slash",
        b"\xff\x00text\xc3": r"\xff\x00text\xc3",
        "\u2028\u202e\x1b[2J".encode(): r"\u2028\u202e\x1b[2J",
        b"\\xff": r"\\xff",
    }
    for value in shown:
        writer.write((value, value, (("\n", value),)))
    assert run(log_dir) == 0
    assert out_lines(capfd) == [f"t-0\t{i}\t1000\t{text}\t{text}\t\\n:{text}" for i, text in enumerate(shown.values())]


def test_json_tells_apart_what_the_readable_form_does_not(log_dir: Path, writer: Writer, capfd: Capture) -> None:
    writer.write((b"null", "wört\n".encode(), (("h", b"\xff"), ("h", None))), (None, b"\xff\xfe", ()))
    assert run(log_dir, "--json") == 0
    first = {"key": "null", "value": "wört\n", "headers": [["h", {"base64": "/w=="}], ["h", None]]}
    second = {"key": None, "value": {"base64": "//4="}, "headers": []}
    assert [json.loads(line) for line in out_lines(capfd)] == [
        {"topic": "t", "partition": 0, "offset": number, "timestamp": 1000 + number} | record
        for number, record in enumerate((first, second))
    ]


@pytest.mark.parametrize(
    ("magic", "compression"), [(1, CompressionType.NONE), (1, CompressionType.LZ4), (2, CompressionType.ZSTD)]
)
def test_all_formats_are_shown(log_dir: Path, capfd: Capture, magic: int, compression: CompressionType) -> None:
    writer = Writer(log_dir, magic=magic)
    for _ in range(2):
        writer.write((b"k", b"a", ()), (b"k", b"b", ()), compression=compression)
    writer.close()
    assert run(log_dir) == 0
    assert out_lines(capfd) == [f"t-0\t{i}\t{1000 + i % 2}\tk\t{'ab'[i % 2]}\t" for i in range(4)]


def test_segments_are_read_in_the_order_of_offsets(log_dir: Path, capfd: Capture) -> None:
    writer = Writer(log_dir, segment_bytes=100)
    for i in range(12):
        writer.values(b"%d" % i)
    writer.close()
    assert len(list((log_dir / "t-0").iterdir())) == 12
    assert run(log_dir) == 0
    assert [line.split("\t")[1:5:3] for line in out_lines(capfd)] == [[str(i), str(i)] for i in range(12)]


def test_topics_and_partitions_can_be_chosen(log_dir: Path, writer: Writer, capfd: Capture) -> None:
    for topic in ("t-1", "t"):
        for partition in (1, 0):
            writer.values(b"v", topic=topic, partition=partition)
    shown = {}
    for argv in ((), ("--topic", "t"), ("--partition", "1"), ("--topic", "t-1", "--partition", "0")):
        assert run(log_dir, *argv) == 0
        shown[argv] = [line.split("\t")[0] for line in out_lines(capfd)]
    assert list(shown.values()) == [["t-0", "t-1", "t-1-0", "t-1-1"], ["t-0", "t-1"], ["t-1", "t-1-1"], ["t-1-0"]]


# --- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("gone",), "gone is not a log directory: No such file or directory"),
        (("log/.lock",), "log/.lock is not a log directory: Not a directory"),
        (("elsewhere",), "elsewhere is not a log directory: no sender has ever written there"),
        (("log", "--topic", "u"), "log has no topic 'u'"),
        (("log", "--partition", "2"), "log has no partition 2"),
        (("log", "--topic", "t", "--partition", "-1"), "log has no partition -1 of topic 't'"),
    ],
)
def test_missing_input_is_status_2(
    tmp_path: Path, writer: Writer, capfd: Capture, monkeypatch: MonkeyPatch, argv: tuple[str, ...], message: str
) -> None:
    writer.values(b"a")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere" / "cron.d").mkdir(parents=True)
    assert run(*argv) == 2
    assert capfd.readouterr() == ("", f"shmaccum dump: {message}\n")


def lz4_of_no_set() -> bytes:
    """Return an old message whose checksum is right, with a wrapper inside that is none."""
    no_set = [Sample(None, b"no set", [], 0)]
    message = bytes(seal(record_format(1), fill(record_format(1), no_set), no_set, CompressionType.GZIP))
    covered = message[16:17] + bytes([CompressionType.LZ4]) + message[18:]
    return message[:12] + zlib.crc32(covered).to_bytes(4, "big") + covered


@pytest.mark.parametrize(
    "behind",
    [lambda batch: batch[:30] + b"\xff" + batch[31:] + batch, lambda batch: lz4_of_no_set()],
    ids=["corrupt bytes", "records that do not hold together"],
)
def test_what_is_corrupt_is_status_1_with_file_and_position(
    log_dir: Path, segment: Path, writer: Writer, capfd: Capture, behind: Callable[[bytes], bytes]
) -> None:
    writer.values(b"a")
    batch = segment.read_bytes()
    segment.write_bytes(batch + behind(batch))
    assert run(log_dir) == 1
    out, err = capfd.readouterr()
    assert out == "t-0\t0\t1000\tnull\ta\t\n"
    assert err.startswith(f"shmaccum dump: {segment} is corrupt at byte {len(batch)}; counted from there, ")
    assert err.count("\n") == 1


def test_a_torn_tail_ends_the_output_and_is_reported_without_a_writer(
    log_dir: Path, segment: Path, capfd: Capture
) -> None:
    writer = Writer(log_dir)
    writer.values(b"a")
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:20])
    line = "t-0\t0\t1000\tnull\ta\t"
    assert run(log_dir) == 0
    assert out_lines(capfd) == [line]
    writer.close()
    assert run(log_dir) == 0
    out, err = capfd.readouterr()
    assert out == f"{line}\n"
    assert f"{segment}: the 20 bytes from byte {len(whole)} on are an incomplete batch" in err


def test_a_torn_batch_before_the_last_segment_is_corrupt(log_dir: Path, segment: Path, capfd: Capture) -> None:
    writer = Writer(log_dir, segment_bytes=100)
    writer.values(b"a")
    writer.values(b"b")
    writer.close()
    os.truncate(segment, segment.stat().st_size - 1)
    assert run(log_dir) == 1
    assert capfd.readouterr() == ("", f"shmaccum dump: {segment} is corrupt at byte 0: the last batch is incomplete\n")


@pytest.mark.parametrize(
    ("make", "said"),
    [(Path.mkdir, "Is a directory"), (os.mkfifo, "it is "), (lambda path: path.symlink_to("/dev/zero"), "it is ")],
    ids=["directory", "fifo", "link"],
)
def test_a_segment_that_is_no_regular_file_is_status_1(
    log_dir: Path, segment: Path, capfd: Capture, make: Callable[[Path], None], said: str
) -> None:
    Writer(log_dir).close()
    segment.parent.mkdir()
    make(segment)
    assert run(log_dir) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"shmaccum dump: {segment}: {said}")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_log_is_read(log_dir: Path, segment: Path, writer: Writer, capfd: Capture) -> None:
    writer.values(b"a")
    os.chown(segment, 65534, 65534)
    assert run(log_dir) == 0
    assert len(capfd.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("records", [1, 5000])
def test_a_reader_that_has_seen_enough_is_no_error(log_dir: Path, writer: Writer, records: int) -> None:
    writer.values(*[b"x" * 1000] * records)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([*COMMAND, log_dir], env=buffered, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        if records > 1:
            assert process.stdout.readline().startswith(b"t-0\t0\t1000\tnull\txxx")
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_output_is_utf_8_in_any_locale(log_dir: Path, writer: Writer) -> None:
    writer.values("wört €".encode())
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    shown = subprocess.run([*COMMAND, log_dir], env=environment, capture_output=True, check=True).stdout
    assert shown == "t-0\t0\t1000\tnull\twört €\t\n".encode()

"""`shmaccum exporter` and `shmaccum sender --metrics-listen`: where they show metrics, and what they refuse."""

from __future__ import annotations

import signal
import socket
import urllib.request
from pathlib import Path

import pytest
from fixture_types import Capture, Command
from processes import wait_until
from prometheus_client.parser import text_string_to_metric_families as parse
from runs import run_python
from slab_settings import Settings

from shmaccum import Producer
from shmaccum.cli.main import main
from shmaccum.shm import names


def values(text: str, name: str) -> dict[str, float]:
    """Return the values of a metric by slab."""
    samples = [sample for family in parse(text) for sample in family.samples if sample.name == name]
    return {sample.labels.get("slab", ""): sample.value for sample in samples}


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        text: str = response.read().decode()
    return text


def test_it_serves_all_slabs_until_a_signal(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with shmaccum("exporter", "--listen", "127.0.0.1:0") as process, Producer(settings) as producer:
        line = process.stdout.readline()
        url = line.removeprefix("metrics at ").strip()
        assert url.startswith("http://127.0.0.1:")
        producer.send("t", b"x").get(timeout=30)
        assert values(fetch(url), "shmaccum_records_sent_total")[slab_name] == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_file_for_node_exporter(settings: Settings, slab_name: str, tmp_path: Path, capfd: Capture) -> None:
    file = tmp_path / "shmaccum.prom"
    with Producer(settings) as producer:
        producer.send("t", b"x").get(timeout=30)
        assert main(["exporter", slab_name, "--textfile", str(file)]) == 0
    assert values(file.read_text(), "shmaccum_records_sent_total") == {slab_name: 1}
    assert file.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.glob("shmaccum.prom*")) == [file]
    assert main(["exporter", "--textfile", str(tmp_path / "nowhere" / "x.prom")]) == 1
    assert "No such file or directory" in capfd.readouterr().err


def test_a_file_that_is_written_again_and_again(shmaccum: Command, tmp_path: Path) -> None:
    """Also once its folder is back."""
    file = tmp_path / "metrics" / "shmaccum.prom"
    with shmaccum("exporter", "--textfile", file, "--every", "0.01") as process:
        assert process.stderr is not None
        assert process.stderr.readline().endswith(f"No such file or directory: '{file}'; next attempt in 0.01 s\n")
        file.parent.mkdir()
        for _ in range(2):
            while not file.exists():
                assert process.poll() is None
            file.unlink()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


@pytest.mark.parametrize("place", [["--listen", "127.0.0.1:0"], ["--otlp"]])
def test_how_often_is_for_a_file(place: list[str], capfd: Capture) -> None:
    assert main(["exporter", *place, "--every", "5"]) == 2
    assert "--every needs --textfile" in capfd.readouterr().err


def test_a_busy_port(capfd: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["exporter", "--listen", f"127.0.0.1:{port}"]) == 2
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use; choose another" in capfd.readouterr().err


def test_what_is_no_address(capfd: Capture) -> None:
    for place in ("x", "127.0.0.1:", "127.0.0.1:65536", "::1:9000", "[::1]"):
        with pytest.raises(SystemExit):
            main(["exporter", "--listen", place])
        assert f"'{place}' is not HOST:PORT" in capfd.readouterr().err


def test_without_the_library_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['prometheus_client'] = None; from shmaccum.cli.main import main; main(['exporter'])"
    done = run_python("-c", code)
    assert "shmaccum exporter: metrics for Prometheus need the library prometheus_client" in done.stderr
    assert "pip install 'shmaccum[exporter]'" in done.stderr


def test_a_sender_serves_its_own_slab(
    settings: Settings, options: list[str], slab_name: str, shmaccum: Command, tmp_path: Path
) -> None:
    other = {"shmaccum.name": f"{slab_name}-other", "log.dir": tmp_path / "other"}
    with (
        Producer(settings | other),
        shmaccum("sender", *options, "-X", "sender.idle.ms=-1", "--metrics-listen", ":0") as process,
    ):
        lines = iter(process.stderr.readline, "")
        url = next(line for line in lines if "metrics at" in line).rpartition(" ")[2].strip()
        assert next(line for line in lines if "serving slab" in line)
        assert values(fetch(url), "shmaccum_sender_up") == {slab_name: 1}
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    wait_until(lambda: f"{slab_name}-other" not in names.slab_names())


def test_a_sender_imports_the_library_only_when_asked() -> None:
    code = "import sys, shmaccum.cli.sender; sys.exit('prometheus_client' in sys.modules)"
    assert run_python("-c", code).returncode == 0

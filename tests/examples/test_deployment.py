"""The unit, the image and the manifest of examples/: checked as far as that goes without an init or a container.

What they start is started, with their own command lines and files; paths that only a host or a container has are
replaced.
"""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from example_programs import EXAMPLES, ROOT, Example, Program, Shop
from producers import wait_until, wait_until_gone

from shmaccum import Producer, ProducerConfig
from shmaccum.config.settingsfile import parse_settings
from tools.kafka.ports import free_port

UNIT = EXAMPLES / "systemd" / "shmaccum@.service"
DOCKERFILE = EXAMPLES / "container" / "Dockerfile"
MANIFEST = EXAMPLES / "container" / "kubernetes.yaml"


@contextmanager
def sender(command: list[str], example: Example) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Run a sender by its command line, with the paths of this machine; at the end, its slab must go with it.

    Yields:
        A function that kills it, calls its argument, and starts the next sender.
    """
    program, *arguments, settings = command
    assert Path(program).name == "shmaccum"
    assert Path(settings).name in ("orders.properties", "producer.properties")
    example.properties.write_text(example.properties.read_text().replace("sender.idle.ms=100\n", ""))

    def start() -> Program:
        started = example.start(sys.executable, "-m", "shmaccum", *arguments, example.properties)
        wait_until(lambda: "serving slab" in started.errors(), "the sender serves")
        return started

    running = start()

    def kill_and_start_again(meanwhile: Callable[[], object]) -> None:
        nonlocal running
        running.process.kill()
        meanwhile()
        running = start()

    yield kill_and_start_again
    running.process.terminate()
    assert running.wait() == 0
    wait_until_gone(example.slab)


def test_the_units_sender_is_started_again_after_a_kill(example: Example) -> None:
    """As Restart=always does; what is accepted meanwhile is delivered."""
    parser = configparser.ConfigParser(strict=False, interpolation=None)  # systemd adds up options given twice
    parser.read(UNIT)
    assert parser["Service"]["Restart"] == "always"
    command = parser["Service"]["ExecStart"].replace("%i", "orders").split()
    with sender(command, example) as kill_and_start_again, Producer.from_file(example.properties) as producer:
        producer.send("orders", b"", key="before").get(60)
        kill_and_start_again(lambda: producer.send("orders", b"", key="after"))
    assert example.stored() == {"before": 1, "after": 1}


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """And it is the one of docs/operations.md, but for comments."""
    text = UNIT.read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    block = (ROOT / "docs" / "operations.md").read_text().split("```ini\n")[1].split("```")[0]
    assert lines == [line for line in block.splitlines() if line and not line.startswith("#")]
    if shutil.which("systemd-analyze"):
        (tmp_path / "shmaccum@.service").write_text(text.replace("/opt/app/bin/shmaccum", sys.executable))
        command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "shmaccum@orders.service")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd")
def test_systemd_rates_the_units_exposure_below_three(tmp_path: Path) -> None:
    unit = shutil.copy(UNIT, tmp_path)
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=30", "--no-pager", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


def probed(command: list[str], example: Example) -> int:
    """Return the exit status of a probe of the test's slab."""
    program, *arguments = command
    assert program == "shmaccum"
    arguments = [example.slab if word == "orders" else word for word in arguments]
    return subprocess.run([sys.executable, "-m", "shmaccum", *arguments], timeout=60, check=False).returncode


def dockerfile() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with what follows each."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(words[0], words[2]) for line in text.splitlines() if (words := line.partition(" "))[0]]


@pytest.fixture
def image(example: Example) -> Path:
    """Return a directory with the image's files; what it installs by pip is installed here."""
    directory = example.directory / "app"
    directory.mkdir()
    for instruction, text in dockerfile():
        if instruction == "RUN" and text.startswith("pip install"):
            for package in text.split()[2:]:
                assert package.startswith("--") or version(package)
        if instruction == "COPY":
            *sources, target = text.split()
            assert target == "./"
            for source in sources:
                shutil.copy(EXAMPLES / source, directory)
    return directory


def start_image(example: Example, image: Path, port: int) -> Program:
    """Start the image's command, which is a form without a shell."""
    (command,) = [json.loads(text) for instruction, text in dockerfile() if instruction == "CMD"]
    assert command[0] == "gunicorn"
    command = [sys.executable, "-m", *command]
    return example.start(*[word.replace("0.0.0.0:8000", f"127.0.0.1:{port}") for word in command], cwd=image)


@contextmanager
def running_image(example: Example, image: Path) -> Iterator[Shop]:
    """Run the image, order all the time, and end it in the middle of that, as ``docker stop`` and the kubelet do."""
    shop = Shop(free_port(), example.slab)
    app = start_image(example, image, shop.port)
    wait_until(lambda: (shop.order(), shop.accepted)[1], "the application serves")
    yield shop
    with shop.open():
        shop.wait_for_workers(2)
        app.process.terminate()
        assert app.wait() == 0


def assert_all_is_stored_once(example: Example, shop: Shop) -> None:
    wait_until_gone(example.slab)
    stored = example.stored()
    assert shop.accepted.keys() - stored.keys() == set()
    assert set(stored.values()) == {1}


def test_an_image_ends_after_its_records_are_acknowledged(example: Example, image: Path) -> None:
    """With the container the sender ends, so nothing can be waiting then."""
    (check,) = [text.partition("CMD ")[2] for instruction, text in dockerfile() if instruction == "HEALTHCHECK"]
    assert probed(json.loads(check), example) == 2
    with running_image(example, image) as shop:
        assert probed(json.loads(check), example) == 0
    assert_all_is_stored_once(example, shop)


def test_a_pods_containers_share_the_sender_beside_them(example: Example, image: Path) -> None:
    """The manifest is valid; its sender is killed once, started again, and ends after the application."""
    deployment, secret = yaml.safe_load_all(MANIFEST.read_text())
    for document in (deployment, secret):
        for version_ in ("1.29", "1.37"):
            kubernetes_validate.validate(document, version_, strict=True)
    pod: dict[str, Any] = deployment["spec"]["template"]["spec"]
    settings = secret["stringData"]["producer.properties"]
    assert ProducerConfig.parse(parse_settings(settings, "secret")).shmaccum_name == "orders"
    (sidecar,), (app,) = pod["initContainers"], pod["containers"]
    assert {"name": "shm", "mountPath": "/dev/shm"} in sidecar["volumeMounts"]
    assert sidecar["volumeMounts"] == app["volumeMounts"]

    with sender(sidecar["command"], example) as kill_and_start_again, running_image(example, image) as shop:
        for kind in ("livenessProbe", "readinessProbe"):
            assert probed(sidecar[kind]["exec"]["command"], example) == 0
        kill_and_start_again(shop.order)
    assert_all_is_stored_once(example, shop)

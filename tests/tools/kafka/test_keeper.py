"""What is kept lives no longer than its owner, however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import wait_until
from runs import run_python

from tools.kafka import keeper
from tools.kafka.running import Running

OWNER = """
import os, subprocess, sys, time
keeper = subprocess.Popen(
    [sys.executable, {keeper!r}, str(os.getpid()), "sleep", "600"], start_new_session=True, stdout=subprocess.PIPE
)
print(keeper.pid, int(keeper.stdout.readline()), flush=True)
time.sleep(60)
"""
STARTS_A_BROKER = """
import sys, time
from pathlib import Path
from tools.kafka import KafkaCluster
cluster = KafkaCluster(Path(sys.argv[1]))
cluster.start()
print(cluster.nodes[1].running.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("killed", ["owner", "keeper"])
def test_the_command_dies_with_them(killed: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER.format(keeper=keeper.__file__)], stdout=subprocess.PIPE, text=True
    ) as owner:
        keeper_pid, pid = map(int, owner.stdout.readline().split())
        command = Running.process(pid)
        assert command.is_alive()
        os.kill(owner.pid if killed == "owner" else keeper_pid, signal.SIGKILL)
        wait_until(lambda: not command.is_alive())
        owner.kill()


def test_a_command_that_ends_lets_go_and_prints_beside_its_pid() -> None:
    done = run_python("-I", "-S", keeper.__file__, os.getpid(), "sh", "-c", "echo out; echo $$ >&2")
    assert done.stderr.split() == ["out", done.stdout.strip()], "standard output is for the pid"


def test_only_its_own_parent_can_be_the_owner() -> None:
    done = run_python(keeper.__file__, "1", "sh", "-c", "echo never")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_broker_dies_with_the_program_that_started_it(apache_kafka: None, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_BROKER, tmp_path], stdout=subprocess.PIPE, text=True
    ) as program:
        broker = Running.process(int(program.stdout.readline()))
        assert broker.is_alive()
        program.kill()
        wait_until(lambda: not broker.is_alive())

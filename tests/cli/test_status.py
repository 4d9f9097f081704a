"""How slabs are shown: to people, to programs, again and again, and in few columns."""

from __future__ import annotations

import json
import os
import re
import signal

import pytest
from fixture_types import Capture, Command, Link, Start
from processes import wait_until
from slab_settings import Settings

from shmaccum import Producer, __version__
from shmaccum._core import LANE_ERROR, Geometry, Lane, Partition
from shmaccum.accumulator.state.lanes import LaneTable
from shmaccum.cli.main import main
from shmaccum.cluster import TopicPartition
from shmaccum.errors import ProducerFencedError
from shmaccum.observe.report import report
from shmaccum.observe.verdict import Finding, Level, findings
from shmaccum.shm import names
from shmaccum.shm.lifecycle import attach

TOPIC = "t" * 249


def show(capfd: Capture, *arguments: str) -> str:
    assert main(["status", *arguments]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    return out


def test_for_people_and_for_programs(settings: Settings, slab_name: str, capfd: Capture) -> None:
    with Producer(settings | {"compression.type": "zstd"}) as producer:
        for number in range(1234):
            producer.send("orders", b"%d: " % number + b"x" * 800, partition=1)
        producer.flush()
        wait_until(lambda: report(slab_name).memory.used == 0)  # the sender frees it after it has pushed the completion
        out = show(capfd, slab_name)
        said = json.loads(show(capfd, slab_name, "--json"))
        everything = json.loads(show(capfd, "--json"))["slabs"]
    assert said["version"] == __version__
    assert [slab["name"] for slab in said["slabs"]] == [slab_name]
    assert slab_name in [slab["name"] for slab in everything]
    lines = out.splitlines()
    assert lines[:2] == [f"shmaccum {__version__}", slab_name]
    assert re.search(r"  sender    process \d+, (asleep|awake); 1 start so far\n", out)
    assert "  memory    0 B of 1.0 MiB used, at most " in out
    assert re.search(r"  tables    1 of \d+ topics; \d+ of [\d,]+ partitions\n", out)
    assert re.search(r"sent      1,234 records .*, compressed to [0-9]%", out)
    assert "0 records failed, 0 of them after their producer had died, " in out
    rows = [line.split() for line in lines]
    assert [str(os.getpid()), "producer", "alive", "1,234"] in [row[:4] for row in rows]
    assert ["orders-1", "node", "0", "0", "0", "0", "0", "1,234", "0", "1,233"] in rows
    (headings,) = (row for row in rows if row[:1] == ["PROCESS"])
    (of_sender,) = (row for row in rows if row[1:2] == ["sender"])
    assert int(of_sender[headings.index("COMPRESSED")]) > 0
    assert "\x1b" not in out, "no colours where there is no terminal"


def test_transactions_for_people(settings: Settings, slab_name: str, capfd: Capture) -> None:
    with Producer(settings) as producer:
        producer.send("t", b"x", partition=0).get(timeout=30)
        state = producer._accumulator.state
        lease = LaneTable(state.slab, state.map).lease("orders\x1b[31m 1")
        lease.queue(state.map.queues[TopicPartition("t", 1)])
        out = show(capfd, slab_name)
        assert re.search(rf"orders\\x1b\[31m 1 +{os.getpid()} +closed +- +- +-\n", out)
        lease.open(70_001, 4, 2)
        out = show(capfd, slab_name)
        assert re.search(rf"orders\\x1b\[31m 1 +{os.getpid()} +open +\d+ m?s +70001 +4\n", out)
        assert re.search(r"  t-1 of orders\\x1b\[31m 1 +", out)
        assert re.search(r"  tables    .* partitions; 1 of 64 transactions\n", out)
        state.slab.words[lease._at + Lane.ERROR] = LANE_ERROR | ProducerFencedError.code
        assert re.search(rf" +{os.getpid()} +ProducerFencedError +", show(capfd, slab_name))
        lease.release()
        (left,) = report(slab_name).idle_partitions
        at = state.slab.geometry.partition(left.entry)
        state.slab.words[at + Partition.RECORDS_SENT] = 1234
        state.slab.words[at + Partition.LAST_OFFSET] = 1235 + 1
        out = show(capfd, slab_name)
        assert "orders" not in out
        (row,) = (line.split() for line in out.splitlines() if line.startswith("  t-1 "))
        assert row[-3:] == ["1,234", "0", "1,235"], "what its transactions have sent"


def test_nothing_is_cut(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with Producer(settings) as producer:
        producer.send(TOPIC, b"x", partition=0).get(timeout=30)
        with shmaccum("status", slab_name, COLUMNS="40", PYTHONIOENCODING="ascii") as process:
            out, err = process.communicate(timeout=30)
    assert err == ""
    (row,) = [line.split() for line in out.splitlines() if line.startswith(f"  {TOPIC}-0")]
    assert row == [f"{TOPIC}-0", "node", "0", "0", "0", "0", "0", "1", "0", "0"]


def test_an_unknown_topic(settings: Settings, slab_name: str, capfd: Capture) -> None:
    with Producer(settings | {"shmaccum.max.partitions": 2}) as producer:
        producer.partitions_for("first")
        with pytest.raises(Exception, match="second"):
            producer.partitions_for("second")
        assert "  topic     second: there is no such topic" in show(capfd, slab_name)


def test_a_table_that_is_nearly_full(settings: Settings, slab_name: str, capfd: Capture) -> None:
    with Producer(settings | {"shmaccum.max.topics": 10}) as producer:
        for number in range(8):
            producer.partitions_for(f"topic{number}")
        assert "nearly full" not in show(capfd, slab_name)
        producer.partitions_for("topic8")
        assert "9 of 10 topics, nearly full: set shmaccum.max.topics higher;" in show(capfd, slab_name)
        advice = "9 of 10 topics: set shmaccum.max.topics higher"
        assert findings(report(slab_name)) == [Finding(Level.WARNING, advice)]


def test_watching_a_slab_that_comes_later(settings: Settings, slab_name: str, shmaccum: Command) -> None:
    with shmaccum("status", slab_name, "--watch", "0.01") as process:

        def wait_for(said: str) -> None:
            while said not in process.stdout.readline():
                assert process.poll() is None

        wait_for(f"There is no slab '{slab_name}' yet.")
        with Producer(settings):
            wait_for("  memory    ")
        wait_for(f"There is no slab '{slab_name}' yet.")


def test_a_name_that_no_slab_can_have_is_not_watched(capfd: Capture) -> None:
    assert main(["status", "../etc", "--watch", "1"]) == 1
    assert "cannot be a slab's name" in capfd.readouterr().err


def attach_and_die(link: Link, name: str) -> None:
    attach(name, Geometry(slot_size=64, slot_count=8, max_processes=8, max_topics=4, max_partitions=4))
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("json_too", [False, True])
def test_an_empty_slab_of_the_dead_is_removed(slab_name: str, start: Start, capfd: Capture, json_too: bool) -> None:
    said = f"{slab_name}: removed, because it was empty and all of its users have died"
    while True:
        assert start(attach_and_die, slab_name).join() == -signal.SIGKILL
        out = show(capfd, *["--json"] * json_too)
        # A producer of another test can be in the middle of removing it.
        wait_until(lambda: not any(map(os.path.exists, names.leftovers(slab_name))))
        if json_too:
            json.loads(out)
            break
        if said in out:
            break  # else a producer of another test has removed it

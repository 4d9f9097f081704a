"""The fuzzer's corpus, some new inputs, and that the fuzzer finds what there is to find.

Long runs: ``python -m tools.fuzz``.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Capture

from shmaccum._core import CACHE_LINE, PAGE, Geometry
from shmaccum.errors import CorruptRecordError
from shmaccum.kafka import codec
from shmaccum.shm import validation
from tools.fuzz import __main__ as fuzz
from tools.fuzz import responses
from tools.fuzz.__main__ import CORPUS, load
from tools.fuzz.child import try_in_child
from tools.fuzz.decoders import BytesTarget, RecordsTarget
from tools.fuzz.slab import Damage, random_damage, regions

INPUTS = {
    "slab": 50, "sweep": 20, "columns": 300, "records": 900, "log": 60,
    "responses": 900, "settings": 300,
}  # fmt: skip
ROTATING = random.Random(time.time_ns()).randrange(1_000_000)
"""Another one every time. A failing test shows it; what it found, ``--seed`` finds again."""


@pytest.fixture(autouse=True)
def no_logging() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_the_corpus(name: str) -> None:
    kept = load(CORPUS, name)
    with fuzz.TARGETS[name]() as target:
        found = list(target.try_all([data for _, data in kept]))
    assert len(found) == len(kept)
    for (path, _), attempt in zip(kept, found, strict=True):
        assert not attempt.wrong, f"{path}\n{attempt.wrong}"


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_new_inputs(name: str) -> None:
    with fuzz.TARGETS[name]() as target:
        for attempt in itertools.islice(target.attempts(random.Random(f"{name} {ROTATING}")), INPUTS[name]):
            assert not attempt.wrong, f"seed {ROTATING}: {attempt.data!r}\n{attempt.wrong}"


# --- a check that cannot fail proves nothing ------------------------------------------------------------


def test_a_slab_without_checks_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for check in ("_refuse", "check_counts"):
        monkeypatch.setattr(validation, check, lambda *args: None)
    monkeypatch.setattr(validation, "explain", lambda *args: None)
    plan = b'{"steps": ["status", "damage", "status"], "damage": [["super", 0, "TOPIC_COUNT", 1000000]]}'
    with fuzz.TARGETS["slab"]() as target:
        (attempt,) = target.try_all([plan])
    assert attempt.wrong


def test_unchecked_answers_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "_MALFORMED", ())
    kept = [data for _, data in load(CORPUS, "responses")]
    with fuzz.TARGETS["responses"]() as target:
        assert any(attempt.wrong for attempt in target.try_all(kept))


def hang() -> str:
    while True:
        pass


def crash() -> str:
    return str(ctypes.string_at(0))


def take_memory() -> str:
    return str(len(bytes(2 << 30)))


def raise_undeclared() -> str:
    raise KeyError("undeclared")


def raise_declared() -> str:
    raise CorruptRecordError("declared")


@pytest.mark.parametrize(
    ("action", "outcome", "wrong"),
    [
        (crash, "killed", "signal 11"),
        (take_memory, "failed", "MemoryError"),
        (raise_undeclared, "failed", "KeyError: 'undeclared'"),
        (raise_declared, "CorruptRecordError", ""),
        (hang, "failed", "in hang"),
        (lambda: "done", "done", ""),
    ],
)
def test_a_child(action: Callable[[], str], outcome: str, wrong: str) -> None:
    found, what = try_in_child(action, 0.2 if action is hang else None)
    assert found == outcome
    assert (wrong in what) if wrong else not what


class Brittle(BytesTarget):
    """Fails at some inputs, and dies at others."""

    def __init__(self) -> None:
        super().__init__([b"seed"])

    def decode(self, data: bytes) -> str:
        return {b"fails": raise_undeclared, b"dies": crash}.get(data, lambda: "read")()


def test_one_that_fails_does_not_keep_the_others_from_being_tried() -> None:
    inputs = [b"1", b"fails", b"2", b"3", b"dies", b"fails", b"4"]
    outcomes = [(attempt.data, bool(attempt.wrong)) for attempt in Brittle().try_all(inputs)]
    assert sorted(outcomes) == sorted((data, data in (b"fails", b"dies")) for data in inputs)


# --- the inputs -----------------------------------------------------------------------------------------

GEOMETRY = Geometry(64, 9, 3, 2, 2)


def test_all_of_a_slab_is_a_region() -> None:
    end = 0
    for name, region in regions(GEOMETRY).items():
        start = 8 * region.start
        assert end <= start <= end + (PAGE if name == "memory" else CACHE_LINE), f"what is before region {name!r}?"
        end = start + 8 * region.entries * region.words
    assert end == GEOMETRY.total_size


def test_damage_stays_within_the_slab_and_can_be_written_down() -> None:
    rng = random.Random(1)
    memory = rng.randbytes(GEOMETRY.total_size)
    for _ in range(300):
        for damage in random_damage(rng, GEOMETRY, memory):
            for word, value in Damage(*damage).stores(GEOMETRY):
                assert 0 <= word * 8 < GEOMETRY.total_size
                assert 0 <= value < 1 << 64
    for damage in (("tables", 0, "STATE", 1), ("slot", 99, "STATE", 1), ("slot", 0, "COLOUR", 1), ("slot", 0, 99, 1)):
        assert not list(Damage(*damage).stores(GEOMETRY)), "what the layout has no longer is left out"


def test_seeds_are_read_as_what_they_are() -> None:
    for target in (RecordsTarget(), responses.ResponsesTarget()):
        outcomes = {target.decode(seed) for seed in target.seeds}
        assert any("read" in outcome or "taken" in outcome for outcome in outcomes)
        assert not any("NetworkError" in outcome for outcome in outcomes)


# --- the command ----------------------------------------------------------------------------------------


def test_failing_inputs_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture) -> None:
    class Fails(Brittle):
        def make(self, rng: random.Random) -> bytes:
            return b"fails"

    targets: dict[str, Any] = {"brittle": Fails}
    monkeypatch.setattr(fuzz, "TARGETS", targets)
    assert fuzz.main(["brittle", "--seconds", "0.1", "--seed", "5", "--corpus", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("seed 5\n")
    assert "KeyError: 'undeclared'" in out
    assert [data for _, data in load(tmp_path, "brittle")] == [b"fails"]


def test_nothing_fails(tmp_path: Path, capsys: Capture) -> None:
    assert fuzz.main(["responses", "--seconds", "0.1", "--corpus", str(tmp_path)]) == 0
    assert "0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"), [(["slap"], "there is no target 'slap'; there are: slab,"), (["--seconds", "-1"], "seconds")]
)
def test_misuse(arguments: list[str], said: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        fuzz.main(arguments)
    assert end.value.code == 2
    assert said in capsys.readouterr().err

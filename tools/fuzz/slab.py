"""The target ``slab``: damage to the words of a slab, and operations on it.

An input is a plan: operations in order, and the point of the damage. It fails if a process that follows it crashes,
hangs, takes unbounded memory, or gets an error that is not in `shmaccum.errors`.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from shmaccum.errors import ShmaccumError
from shmaccum.shm import names
from tools.fuzz.child import Attempt, try_in_child
from tools.fuzz.damage import Damage, random_damage
from tools.fuzz.image import SlabImage
from tools.fuzz.operations import OPERATIONS, Session

DAMAGE: Final = "damage"
"""Marks the damage among a plan's steps."""
_WEIGHTY: Final = ("serve", "send", "send", "drain", "drain", "complete", "append")


class SlabTarget:
    """Damages slabs; use as a context manager."""

    suffix = ".json"

    def __enter__(self) -> Self:
        self._cleanup = ExitStack()
        self._log_dir = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="shmaccum-fuzz-")))
        self._image = self._cleanup.enter_context(SlabImage(f"fuzz-{os.getpid()}", self._log_dir))
        return self

    def __exit__(self, *error: object) -> None:
        self._cleanup.close()

    def make(self, rng: random.Random) -> bytes:
        """Return a random plan."""
        steps = [rng.choice((*OPERATIONS, *_WEIGHTY)) for _ in range(rng.randint(1, 5))]
        # Most damage that is there at an attach is refused then: have it come later as a rule.
        before = 0 if rng.random() < 0.25 else rng.randrange(1, len(steps) + 1) if len(steps) > 1 else 1
        if before == len(steps):
            steps.append(rng.choice(tuple(OPERATIONS)))
        steps.insert(before, DAMAGE)
        damage = random_damage(rng, self._image.geometry, self._image.memory)
        return json.dumps({"steps": steps, "damage": damage}).encode()

    def attempts(self, rng: random.Random) -> Iterator[Attempt]:
        """Make plans and follow them, forever."""
        while True:
            yield from self.try_all([self.make(rng)])

    def try_all(self, plans: Sequence[bytes]) -> Iterator[Attempt]:
        """Follow plans, each with the restored slab."""
        for plan in plans:
            self._begin()
            outcome, wrong = try_in_child(partial(self._follow, json.loads(plan)))
            yield Attempt(plan, outcome, wrong)

    def _begin(self) -> None:
        """Restore the slab, and remove the log."""
        self._image.restore()
        for path in self._log_dir.rglob("*.log"):
            path.unlink()

    def _follow(self, plan: dict[str, Any]) -> str:
        session = Session(self._image)
        outcomes = []
        for step in plan["steps"]:
            if step == DAMAGE:
                self._damage(plan)
                continue
            try:
                session.do(step)
                outcomes.append("done")
            except ShmaccumError as error:
                outcomes.append(type(error).__name__)
        return " ".join(outcomes)

    def _damage(self, plan: dict[str, Any]) -> None:
        """Write into the segment's file; mappings show it at once."""
        path = Path(names.segment_path(self._image.config.shmaccum_name))
        if not path.exists():
            return  # the plan has had it removed
        with path.open("r+b", buffering=0) as file:
            for damage in plan["damage"]:
                for word, value in Damage(*damage).stores(self._image.geometry):
                    file.seek(8 * word)
                    file.write(value.to_bytes(8, "little"))

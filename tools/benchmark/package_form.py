"""The two forms of the package: compiled, as pip installs it with a C compiler, and plain Python.

The tool itself runs parts of the plain form. Its child processes choose a form before they import a contestant, and
check that they have it. The tool also checks the processes that they start (our sender, Spark's Python). So no figure
comes from the other form.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

from tools.benchmark.errors import BenchmarkError, MissingError

ROOT: Final = Path(__file__).resolve().parents[2]
_BUILT: Final = ROOT / "build" / "compiled"
"""``make test`` uses the same directory."""
_LIBRARIES: Final = f"shmaccum/**/*{EXTENSION_SUFFIXES[0]}"
"""For this interpreter."""
_COMPILERS: Final = ("cc", "gcc", "clang")


@dataclass(frozen=True, slots=True)
class Form:
    """A form of the package.

    Attributes:
        compiled: which one.
        home: the directory that contains it.
    """

    compiled: bool
    home: Path

    @property
    def name(self) -> str:
        """Name for reports."""
        return "compiled" if self.compiled else "plain Python"

    def enter(self) -> None:
        """Switch this process, and processes that it starts, to this form.

        Raises:
            BenchmarkError: it has already imported a producer, or imports another form.
        """
        if "shmaccum.accumulator" in sys.modules:
            raise BenchmarkError("the package was imported before its form was chosen")
        for name in [name for name in sys.modules if name.partition(".")[0] == "shmaccum"]:
            del sys.modules[name]  # the few that the tool itself has imported, which hold no state
        paths = [str(self.home), str(ROOT)]
        sys.path[:0] = paths
        inherited = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
        os.environ["PYTHONPATH"] = os.pathsep.join(paths + inherited)
        importlib.invalidate_caches()
        found = importlib.import_module("shmaccum")
        if found.compiled != self.compiled or not str(found.__file__).startswith(str(self.home)):
            raise BenchmarkError(f"the package should be {self.name}, but the import found {found.__file__}")

    def check(self, pids: Iterable[int]) -> None:
        """Check that processes which have imported the package have this form of it.

        Raises:
            BenchmarkError: one has the other form.
        """
        for pid in pids:
            try:
                maps = Path(f"/proc/{pid}/maps").read_text()
            except OSError:
                continue  # it has exited
            if maps and (f"{_BUILT}/shmaccum/" in maps) != self.compiled:
                raise BenchmarkError(f"a process does not run the package as {self.name}, the form to be measured")


PLAIN: Final = Form(False, ROOT)
COMPILED: Final = Form(True, _BUILT)
"""Use `compiled_form`, which ensures that it exists."""


def has_compiler() -> bool:
    """Return whether there is a C compiler."""
    return any(map(shutil.which, _COMPILERS))


def compiled_form(scratch: Path, say: Callable[[str], None]) -> Form:
    """Return the compiled form; build it with pip unless one is newer than its source.

    Args:
        scratch: a directory for pip.
        say: called with a message if that takes a while.

    Raises:
        MissingError: it is not available here; the text has the reason.
    """
    if not has_compiler():
        raise MissingError("there is no C compiler")
    if not _is_up_to_date():
        say("compiling the package, which takes a minute")
        _build(scratch)
    return COMPILED


def _is_up_to_date() -> bool:
    libraries = [path.stat().st_mtime for path in _BUILT.glob(_LIBRARIES)]
    sources = [ROOT / "setup.py", ROOT / "pyproject.toml"]
    sources += [path for path in (ROOT / "shmaccum").rglob("*") if path.suffix in (".py", ".pxd", ".pxi", ".pyx", ".h")]
    return bool(libraries) and min(libraries) > max(path.stat().st_mtime for path in sources)


def _build(scratch: Path) -> None:
    for left in (ROOT / "build").glob("lib*"):  # setuptools would include leftovers
        shutil.rmtree(left)
    target = _BUILT.with_name(f"compiled-{os.getpid()}")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
    try:
        done = subprocess.run(
            [*command, "--target", str(target), str(ROOT)],
            env=os.environ | {"TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise MissingError(f"pip could not install the package: {(done.stdout + done.stderr).strip()[-300:]}")
        if not any(target.glob(_LIBRARIES)):
            raise MissingError("pip installed it without compiling: the compiler failed, or SHMACCUM_PURE is set")
        shutil.rmtree(_BUILT, ignore_errors=True)
        target.rename(_BUILT)
    finally:
        shutil.rmtree(target, ignore_errors=True)

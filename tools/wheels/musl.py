"""A CPython for musl, to try the musllinux wheels with: compiled by Zig from Debian's sources.

No package registry has one. Its programs run on any Linux of the machine, beside glibc's, since musl's loader starts
them: it is Debian's package `musl`, unpacked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tools.wheels import debian
from tools.wheels.interpreters import HOME, installation, zig
from tools.wheels.targets import PYTHONS, WheelError

_MACHINE: Final = "x86_64"
_TARGET: Final = f"{_MACHINE}-linux-musl"


def loader() -> Path:
    """Return musl's loader, which runs its programs: ``loader --argv0 NAME PROGRAM ARGUMENT ...``."""
    return debian.packages(_MACHINE, "musl", ("musl",)) / "lib" / f"ld-musl-{_MACHINE}.so.1"


def python_for_musl() -> Path:
    """Return the program ``python3``, compiled if it is not there yet; that takes some minutes.

    Raises:
        WheelError: a source cannot be fetched, or does not compile.
    """
    place = HOME / "python-musl"
    program = place / "bin" / f"python{debian.PYTHON}"
    stamp = place / "complete"
    if stamp.exists():
        return program
    work = HOME / "python-musl-build"
    for old in (place, work):
        shutil.rmtree(old, ignore_errors=True)
    work.mkdir(parents=True)
    zlib = debian.unpack_source("zlib", work)
    _make(zlib, ["./configure", "--static", f"--prefix={place}"], {"CHOST": _TARGET})
    libffi = debian.unpack_source("libffi", work)
    _run(["autoreconf", "--install"], libffi)
    _make(libffi, ["./configure", *_for_host(place), "--disable-shared", "--with-pic", "--disable-docs"])
    openssl = debian.unpack_source("openssl", work, "bookworm")  # older, and so smaller by two thirds
    options = ("no-shared", "no-tests", "--libdir=lib")
    _make(openssl, ["perl", "Configure", f"linux-{_MACHINE}", f"--prefix={place}", *options], install="install_dev")
    python = debian.unpack_source(f"python{debian.PYTHON}", work)
    # By the C library's headers it would recognise musl, but not by Zig's copy of them.
    (python / "Misc" / "platform_triplet.c").write_text(f"#undef linux\nPLATFORM_TRIPLET={_TARGET}\n")
    same = next(python for python in PYTHONS if python.version == debian.PYTHON)
    builder = installation(same, f"linux-{_MACHINE}")  # runs the build's own programs
    _make(
        python,
        [
            *("./configure", *_for_host(place), "--disable-test-modules", "--without-ensurepip"),
            f"--with-openssl={place}",
            f"--with-build-python={builder}/bin/python{debian.PYTHON}",
            # What it would find by running a program there:
            *("ac_cv_file__dev_ptmx=yes", "ac_cv_file__dev_ptc=no", "ac_cv_buggy_getaddrinfo=no"),
        ],
        {
            "LD_LIBRARY_PATH": str(builder),
            "CPPFLAGS": f"-I{place}/include",
            "LDFLAGS": f"-L{place}/lib",
            "PKG_CONFIG_LIBDIR": f"{place}/lib/pkgconfig",
        },
    )
    shutil.rmtree(work)
    stamp.touch()
    return program


def _for_host(place: Path) -> tuple[str, ...]:
    return f"--prefix={place}", f"--host={_TARGET}", f"--build={os.uname().machine}-linux-gnu"


def _make(
    source: Path, configure: list[str], variables: dict[str, str] | None = None, install: str = "install"
) -> None:
    """Configure, compile and install a package."""
    cache = str(HOME / "zig-cache")
    tools = " ".join(zig())
    environment = os.environ | {
        # Its programs load modules at run time, which programs of musl otherwise cannot: Zig links them statically.
        "CC": f"{tools} cc -target {_TARGET} -dynamic -fno-sanitize=undefined -Wno-date-time",
        "AR": f"{tools} ar",
        "RANLIB": f"{tools} ranlib",
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
        **(variables or {}),
    }
    for command in (configure, ["make", "-j", str(os.cpu_count() or 1)], ["make", install]):
        _run(command, source, environment)


def _run(command: list[str], source: Path, environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise WheelError(
            f"{source.name} needs {error.filename}: `apt-get install autoconf automake libtool libltdl-dev`"
        ) from error
    if done.returncode:
        told = (done.stdout + done.stderr)[-3000:]
        raise WheelError(f"{source.name} does not compile for musl: {' '.join(command)}:\n{told}")

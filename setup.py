"""Compiles what every record and every batch passes through, where there is a C compiler and nobody is against it.

The modules are plain Python, and without a compiler they are installed as such. What Cython is to know of their types
is in the ``.pxd`` file beside each. ``SHMACCUM_PURE=1`` leaves compiling out, and so does an editable install: whoever
changes the source is to run what it says. ``SHMACCUM_SANITIZE=1`` has AddressSanitizer and UBSan look after what is
compiled, for processes that have libasan loaded (``python -m tools.fuzz --sanitize``).

It is all of them or none: compiled modules call each other in C, and half of the locks in C would be no lock.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # what is not in a .pxd file stays a Python object, with Python's rules
    "boundscheck": True,
    "wraparound": False,  # no index counts from the end, which is for the sources to see to
    "cdivision": True,
    "binding": True,
}

SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]


def is_set(variable: str) -> bool:
    """Return whether a variable of the environment is neither missing, empty nor 0."""
    return os.environ.get(variable, "0") not in ("", "0")


def extensions() -> list[Extension]:
    """Return the modules that have a ``.pxd`` file."""
    if is_set("SHMACCUM_PURE") or "editable_wheel" in sys.argv:
        return []
    from Cython.Build import cythonize

    typed = sorted(Path("shmaccum").rglob("*.pxd"))
    modules = [next(path for kind in (".py", ".pyx") if (path := pxd.with_suffix(kind)).exists()) for pxd in typed]
    flags = SANITIZED if is_set("SHMACCUM_SANITIZE") else []
    found = [
        Extension(
            ".".join(module.with_suffix("").parts),
            [str(module)],
            extra_compile_args=["-O1", "-g1", *flags] if flags else ["-O2", "-g0"],
            extra_link_args=flags,
        )
        for module in modules
    ]
    return cythonize(found, compiler_directives=DIRECTIVES, build_dir="build/cython", nthreads=os.cpu_count() or 1)


class AllOrNone(build_ext):
    """Compiles all the modules, or, where one cannot be compiled, none."""

    def run(self) -> None:
        """Build them; a failure leaves the package as plain Python."""
        try:
            super().run()
        except Exception as error:  # whatever a compiler, or the lack of one, comes to
            print(f"shmaccum is installed as plain Python, since it cannot be compiled here: {error}", file=sys.stderr)
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []


setup(ext_modules=extensions(), cmdclass={"build_ext": AllOrNone}, options={"build_ext": {"parallel": os.cpu_count()}})

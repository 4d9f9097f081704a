"""The build's back end: setuptools', which also asks for Zig's C compiler where the system has none."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from collections.abc import Mapping

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: Mapping[str, str | list[str] | None] | None = None) -> list[str]:
    """Return what a wheel's build needs beside what ``pyproject.toml`` lists."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler()]


def get_requires_for_build_editable(config_settings: Mapping[str, str | list[str] | None] | None = None) -> list[str]:
    """Return what the build of an editable install needs beside what ``pyproject.toml`` lists."""
    return [*build_meta.get_requires_for_build_editable(config_settings), *_compiler()]


def _compiler() -> list[str]:
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    return [] if shutil.which(command[0]) else ["ziglang"]

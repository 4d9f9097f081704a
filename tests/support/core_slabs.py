"""What the core's tests share: the core's view of a slab that the package's Python code uses."""

from __future__ import annotations

import os
from dataclasses import fields

from shmaccum import _core
from shmaccum.shm import names
from shmaccum.shm.layout import Geometry


def core_geometry(geometry: Geometry) -> _core.Geometry:
    """Return the core's geometry of the same sizes."""
    return _core.Geometry(**{each.name: getattr(geometry, each.name) for each in fields(geometry) if each.init})


def core_segment(name: str, geometry: Geometry) -> _core.Segment:
    """Map an existing slab."""
    descriptor = os.open(names.segment_path(name), os.O_RDWR)
    try:
        return _core.Segment(descriptor, core_geometry(geometry))
    finally:
        os.close(descriptor)


def empty_segment(geometry: _core.Geometry) -> _core.Segment:
    """Return a segment of zeros, which no other process sees."""
    descriptor = os.memfd_create("segment")
    try:
        os.ftruncate(descriptor, geometry.total_size)
        return _core.Segment(descriptor, geometry)
    finally:
        os.close(descriptor)

"""Types of the core, which ``core/_core.pyx`` defines."""

from typing import final

import numpy as np
import numpy.typing as npt

@final
class Geometry:
    def __init__(
        self,
        slot_size: int,
        slot_count: int,
        max_processes: int = 128,
        max_topics: int = 512,
        max_partitions: int = 4096,
        redo_size: int = 0,
        max_lanes: int = 64,
    ) -> None: ...
    @property
    def total_size(self) -> int: ...
    def __hash__(self) -> int: ...

@final
class Segment:
    def __init__(self, descriptor: int, geometry: Geometry) -> None: ...
    @property
    def geometry(self) -> Geometry: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def view(self, region: str) -> npt.NDArray[np.void]: ...

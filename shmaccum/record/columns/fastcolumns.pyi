import numpy as np
from numpy.typing import NDArray

class FastCells:
    def __init__(
        self,
        count: int,
        before: int,
        width: int,
        fixed_size: int,
        valid: object | None,
        offsets: object | None,
        data: object | None,
    ) -> None: ...
    def partitions(self, partitions: NDArray[np.int64], partition_count: int) -> None: ...

class FastBodies:
    def __init__(self, key: FastCells | None, value: FastCells | None, headers: FastCells | None) -> None: ...
    def body_sizes(self, sizes: NDArray[np.int64]) -> None: ...

class FastRows:
    def __init__(
        self,
        bodies: FastBodies,
        numbers: NDArray[np.int64],
        body_sizes: NDArray[np.int64],
        timestamps: NDArray[np.int64],
    ) -> None: ...
    def part(self, start: int, stop: int) -> FastRows: ...

class FastBatches:
    cuts: list[int]
    sizes: list[int]
    largest: list[int]
    base_timestamps: list[int]
    max_timestamps: list[int]
    def __init__(self, rows: FastRows) -> None: ...
    def add_to(self, room: int, first_offset: int, base_timestamp: int) -> int: ...
    def lay_out(self, first: int, room: int, most: int) -> int: ...
    def write(self, memory: memoryview, places: list[int], first: int = 0) -> None: ...
    def records(self, number: int) -> memoryview: ...

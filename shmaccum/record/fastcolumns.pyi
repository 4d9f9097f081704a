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

def fitting(body_sizes: NDArray[np.int64], overhead: int, room: int) -> int: ...
def batch_starts(body_sizes: NDArray[np.int64], first: int, overhead: int, room: int) -> list[int]: ...

class FastBatches:
    sizes: list[int]
    largest: list[int]
    def __init__(
        self,
        records: FastBodies,
        rows: NDArray[np.int64],
        body_sizes: NDArray[np.int64],
        timestamps: NDArray[np.int64],
        starts: list[int],
        stop: int,
        first_offset: int,
        first_base: int,
    ) -> None: ...
    def write(self, memory: memoryview, places: list[int], first: int = 0) -> None: ...
    def records(self, number: int) -> memoryview: ...

"""All the operations, by name."""

from __future__ import annotations

from typing import Final

from tools.crashpoints.operation import Operation
from tools.crashpoints.operations import lifecycle, memory, producing, sending

OPERATIONS: Final[dict[str, Operation]] = {
    operation.name: operation for module in (lifecycle, memory, producing, sending) for operation in module.OPERATIONS
}

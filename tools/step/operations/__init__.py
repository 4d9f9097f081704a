"""All the operations, by name."""

from __future__ import annotations

from typing import Final

from tools.step.operation import Operation
from tools.step.operations import lifecycle, memory, producing, sending

OPERATIONS: Final[dict[str, Operation]] = {
    operation.name: operation for module in (lifecycle, memory, producing, sending) for operation in module.OPERATIONS
}

"""Steps of an operation: the package's bytecode instructions before which a death matters."""

from __future__ import annotations

import dis
import multiprocessing.shared_memory
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import shmaccum

TURNS: Final = 24
"""Most times that one instruction counts: more than the slab has locks, or a small slab slots. A longer loop (spinning
over a lock) only repeats itself."""

_PACKAGE: Final = str(Path(shmaccum.__file__).parent)
_TRACED_BESIDES: Final = frozenset({multiprocessing.shared_memory.__file__})
"""It creates the segment, in several system calls."""

_INERT: Final = re.compile(
    r"""
    (LOAD|BUILD|UNPACK|MATCH|FORMAT|CONVERT|COPY|SWAP|PUSH|POP|UNARY|JUMP|RETURN|YIELD|RESUME|MAKE|GET)(_.*)?
    | (STORE|DELETE)_(FAST|DEREF|NAME|GLOBAL|ATTR)(_.*)?
    | BINARY_(OP|SUBSCR|SLICE) | COMPARE_OP | IS_OP | CONTAINS_OP | TO_BOOL
    | LIST_APPEND | LIST_TO_TUPLE | SET_ADD | MAP_ADD
    | CHECK_.* | RERAISE | RAISE_VARARGS | END_.* | PRECALL | KW_NAMES | NOP | CACHE | EXTENDED_ARG
    """,
    re.VERBOSE,
)
"""Instructions that touch only their frame and private memory, or (a property) run other instructions that are steps
themselves. Reading shared memory does not change it."""
_TOOL: Final = 3
"""A number for `sys.monitoring` that no debugger, coverage tool or profiler uses."""
_FIRST_IN_PLACE: Final = dis._nb_ops.index(("NB_INPLACE_ADD", "+="))  # type: ignore[attr-defined]


def is_step(name: str, argument: int | None) -> bool:
    """Return whether an instruction can change anything outside its frame."""
    if name == "BINARY_OP":
        return argument is not None and argument >= _FIRST_IN_PLACE  # a numpy array changes in place
    return _INERT.fullmatch(name) is None


class Steps:
    """Runs an operation in this thread, and acts just before one of its steps.

    Args:
        act: called there with its place, ``file:line function instruction``.
        at: the number of the step.

    Attributes:
        count: steps so far.
    """

    def __init__(self, act: Callable[[str], object], at: int) -> None:
        self.count = 0
        self._at = at
        self._act = act
        self._not_again: object = None
        """Disables further events of an instruction in the interpreter."""
        self._turns_left: dict[CodeType, bytearray] = {}
        """Steps of each code object by the number of the instruction; empty if it is not traced."""

    def run(self, operation: Callable[[], object]) -> None:
        """Run an operation."""
        if sys.version_info >= (3, 12):  # here frames no longer report all instructions
            monitoring = sys.monitoring
            self._not_again = monitoring.DISABLE
            monitoring.use_tool_id(_TOOL, __name__)
            monitoring.register_callback(_TOOL, monitoring.events.INSTRUCTION, self._on_instruction)
            monitoring.restart_events()
            monitoring.set_events(_TOOL, monitoring.events.INSTRUCTION)
            try:
                operation()
            finally:
                monitoring.set_events(_TOOL, 0)
                monitoring.free_tool_id(_TOOL)
        else:
            sys.settrace(self._on_call)
            try:
                operation()
            finally:
                sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        if not self._turns_of(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_event

    def _on_event(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            self._on_instruction(frame.f_code, frame.f_lasti)
        return self._on_event

    def _on_instruction(self, code: CodeType, offset: int) -> object:
        turns_left, number = self._turns_of(code), offset >> 1
        if not turns_left or not turns_left[number]:
            return self._not_again
        turns_left[number] -= 1
        if self.count == self._at:
            self._act(_place(code, offset))
        self.count += 1
        return None

    def _turns_of(self, code: CodeType) -> bytearray:
        if code not in self._turns_left:
            traced = code.co_filename.startswith(_PACKAGE) or code.co_filename in _TRACED_BESIDES
            self._turns_left[code] = _all_turns(code) if traced else bytearray()
        return self._turns_left[code]


def _all_turns(code: CodeType) -> bytearray:
    turns = bytearray(len(code.co_code) >> 1)
    prefixes = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "EXTENDED_ARG":
            prefixes.append(instruction.offset)
            continue
        if is_step(instruction.opname, instruction.arg):
            # An interpreter that reports the prefix can leave out the instruction that it belongs to.
            for offset in (*prefixes, instruction.offset):
                turns[offset >> 1] = TURNS
        prefixes.clear()
    return turns


def _place(code: CodeType, offset: int) -> str:
    path = Path(code.co_filename)
    name = path.relative_to(Path(_PACKAGE).parent) if path.is_relative_to(_PACKAGE) else path.name
    line = next((line for start, end, line in code.co_lines() if start <= offset < end), None)
    return f"{name}:{line} {code.co_name} {dis.opname[code.co_code[offset]]}"

"""Steps of an operation: the instructions of the package before which it makes a difference to die."""

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
"""How often one instruction counts at most: more often than the slab has locks, or a small slab slots. A loop that goes
on for longer (spinning over a lock) does the same again."""

_PACKAGE: Final = str(Path(shmaccum.__file__).parent)
_TRACED_BESIDES: Final = frozenset({multiprocessing.shared_memory.__file__})
"""It makes the segment, in several system calls."""

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
"""Instructions that touch nothing but their frame and memory of the process, or (a property) run other instructions
that are steps themselves. Reading shared memory leaves it as it is."""
_FIRST_IN_PLACE: Final = dis._nb_ops.index(("NB_INPLACE_ADD", "+="))  # type: ignore[attr-defined]


def is_step(name: str, argument: int | None) -> bool:
    """Say whether an instruction may change anything outside of its frame."""
    if name == "BINARY_OP":
        return argument is not None and argument >= _FIRST_IN_PLACE  # a numpy array changes in place
    return _INERT.fullmatch(name) is None


class Steps:
    """Runs an operation in this thread, and acts just before one of its steps.

    Args:
        at: number of that step; one behind the last is never reached.
        act: called there with its place, ``file:line instruction``.

    Attributes:
        count: steps so far.
    """

    def __init__(self, at: float, act: Callable[[str], object]) -> None:
        self.count = 0
        self._at = at
        self._act = act
        self._turns_left: dict[CodeType, bytearray] = {}
        """Of each code object that is run, by the number of the instruction."""

    def run(self, operation: Callable[[], object]) -> None:
        """Run an operation."""
        sys.settrace(self._on_call)
        try:
            operation()
        finally:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if code not in self._turns_left:
            if not code.co_filename.startswith(_PACKAGE) and code.co_filename not in _TRACED_BESIDES:
                return None
            self._turns_left[code] = _turns_of(code)
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._on_instruction

    def _on_instruction(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "opcode":
            turns_left, number = self._turns_left[frame.f_code], frame.f_lasti >> 1
            if turns_left[number]:
                turns_left[number] -= 1
                if self.count == self._at:
                    self._act(_place(frame))
                self.count += 1
        return self._on_instruction


def _turns_of(code: CodeType) -> bytearray:
    turns = bytearray(len(code.co_code) >> 1)
    prefix = None
    for instruction in dis.get_instructions(code):
        number = instruction.offset >> 1
        if instruction.opname == "EXTENDED_ARG":
            # The interpreter tells of the prefix, and then not of the instruction that it belongs to.
            prefix = number if prefix is None else prefix
            continue
        if is_step(instruction.opname, instruction.arg):
            turns[number if prefix is None else prefix] = TURNS
        prefix = None
    return turns


def _place(frame: FrameType) -> str:
    path = Path(frame.f_code.co_filename)
    name = path.relative_to(Path(_PACKAGE).parent) if path.is_relative_to(_PACKAGE) else path.name
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    return f"{name}:{frame.f_lineno} {frame.f_code.co_name} {instruction}"

"""The docstrings in shmaccum/_core.pyi, where editors and the site look for them: those of the compiled module."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shmaccum import _core

PATH: Final = Path(__file__).resolve().parents[2] / "shmaccum" / "_core.pyi"
CLASSES: Final = ("AsyncProducer", "FutureRecordMetadata", "Message", "PollingProducer", "Producer")
"""Whose objects, or whose methods, a program meets."""


def stub() -> str:
    """Return the stub, in which the classes of `CLASSES` and their public methods have docstrings."""
    lines = PATH.read_text(encoding="utf-8").splitlines()
    for node, text in reversed(list(_documented(ast.parse("\n".join(lines))))):
        first = node.body[0]
        has_docstring = isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str)
        is_all = has_docstring or not isinstance(node, ast.ClassDef)
        indent = " " * (node.col_offset + 4)
        docstring = [f"{indent}{line}".rstrip() for line in f'"""{text}"""'.splitlines()]
        begin = lines[first.lineno - 1][: first.col_offset].rstrip()
        end = first.end_lineno if is_all else first.lineno - 1
        lines[first.lineno - 1 : end] = [*filter(None, [begin]), *docstring]
    return "\n".join([*lines, ""])


def _documented(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    """Yield what has a docstring, in the order of the file."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name in CLASSES:
            described = getattr(_core, node.name)
            yield node, _clean(described.__doc__)
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                    text = inspect.getattr_static(described, method.name).__doc__
                    if text is not None:
                        yield method, _clean(text)


def _clean(docstring: str) -> str:
    """Return a docstring without its indentation; one of several lines ends with a line's end."""
    text = inspect.cleandoc(docstring)
    return f"{text}\n" if "\n" in text else text

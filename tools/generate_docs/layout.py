"""Generates docs/slab-layout.md from ``shmaccum/core/layout.pxi``: diagram, words, sizes of a default slab.

The words and their meanings come from its structs, in which a comment stands above each word. So there is no second
list of them. The states come from the enums of ``shmaccum/shm/layout.py``.
"""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterator
from enum import IntEnum
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from shmaccum.abi import ABI_VERSION
from shmaccum.accumulator.state.accumulator_state import slab_geometry
from shmaccum.config import ProducerConfig
from shmaccum.shm import layout
from tools.generate_docs.text import page, table

SOURCE: Final = Path(__file__).resolve().parents[2] / "shmaccum" / "core" / "layout.pxi"

_TITLES: Final = tomllib.loads(Path(__file__).with_name("layout.toml").read_text(encoding="utf-8"))
ENTRIES: Final[dict[str, str]] = _TITLES["entries"]
"""Struct -> what it lays out."""

STATES: Final = {
    layout.SlotState: "The states of a slot",
    layout.TopicState: "The states of a topic",
    layout.BrokerState: "The states of a broker",
    layout.OfSender: "The sender's histograms",
    layout.OfProcess: "A process's histograms",
}


class Word(NamedTuple):
    """One word of a struct, or a heading between them, which has no name."""

    name: str
    number: int
    meaning: str


class Struct(NamedTuple):
    """A struct of the layout: what its first comment says, its words, and how many there are."""

    text: str
    words: list[Word]
    size: int


def slab_layout() -> str:
    source = SOURCE.read_text(encoding="utf-8")
    structs = structs_of(source)
    _, docstring, _ = source.split('"""', 2)
    text = docstring.partition("\n")[2].strip().replace("::\n", ":\n")
    parts = [page("slab-layout", abi=ABI_VERSION, text=_as_code_block(text))]
    for name, heading in ENTRIES.items():
        struct = structs[name]
        rows = [
            (word.number, f"`{word.name}`", word.meaning) if word.name else ("", "", word.meaning)
            for word in struct.words
        ]
        words = table(("Word", "Name", "Meaning"), rows, ("Word",))
        parts.append(f"## {heading} (`{name}`, {struct.size} words)\n\n{struct.text}\n\n{words}\n")
    for states, heading in STATES.items():
        text = " ".join((inspect.getdoc(states) or "").split())
        members = table(("Value", "Name", "Meaning"), _members(states), ("Value",))
        parts.append(f"## {heading} (`{states.__name__}`)\n\n{text}\n\n{members}\n")
    sizes = table(("Region", "Begins at", "Bytes"), _default_sizes(), ("Begins at", "Bytes"))
    return "\n".join([*parts, f"## A slab with default settings\n\n{sizes}\n"])


def structs_of(source: str) -> dict[str, Struct]:
    """Return the structs of the layout's source that consist of words."""
    constants = {name: int(value) for name, value in re.findall(r"^    (\w+) = (\d+)", source, re.MULTILINE)}
    constants["LOCK_COUNT"] = 2 + constants["STRIPES"]
    structs = {}
    for name, body in re.findall(r"^cdef struct (\w+):\n((?:    .*\n|\n)+)", source, re.MULTILINE):
        words: list[Word] = []
        number = 0
        for paragraph in re.findall(r"((?:    # .*\n)*)(?:    word (\w+)(?:\[(\w+)\])?\n)?", body):
            comment, word, length = paragraph
            meaning = " ".join(line.strip().removeprefix("# ") for line in comment.splitlines())
            if meaning and not word.startswith("unused"):
                words.append(Word(word, number, meaning.replace("``", "`")))
            if word:
                number += (constants.get(length) or int(length)) if length else 1
        if number:
            structs[name] = Struct(words[0].meaning, words[1:], number)
    return structs


def _members(states: type[IntEnum]) -> Iterator[tuple[str, str, str]]:
    """Yield value, name and meaning of an enum's members, each with the docstring that follows it."""
    pattern = r'    (\w+) = (\d+)\n    """(.*?)"""'
    for name, value, meaning in re.findall(pattern, inspect.getsource(states), re.DOTALL):
        yield value, f"`{name}`", " ".join(meaning.split()).replace("``", "`")


def _as_code_block(text: str) -> str:
    """Turn the indented diagram into a fenced block."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.strip() and line.startswith("    ") != inside:
            inside = not inside
            # A block ends in front of the empty line that comes before the next paragraph.
            lines.insert(len(lines) if inside or lines[-1] else len(lines) - 1, "```")
        lines.append(line[4:] if inside else line)
    return "\n".join(lines)


def _default_sizes() -> Iterator[tuple[str, str, str]]:
    geometry = slab_geometry(ProducerConfig.parse({"bootstrap.servers": "broker:9092"}))
    begins = [("superblock", 0), *((title, getattr(geometry, name)) for name, title in _TITLES["regions"].items())]
    for (title, start), (_, end) in pairwise(begins):
        yield title, f"{start:,}", f"{end - start:,}"
    yield "**in all**", "", f"{geometry.total_size:,}"

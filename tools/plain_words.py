"""Lists words and sentences that a reader stumbles over: ``python -m tools.plain_words [FILE ...]``.

It reads docstrings, comments and Markdown. A sentence is listed if it has more than `MOST_WORDS` words or one of the
phrases that hide who does what. What is listed is for a person to judge.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

MOST_WORDS: Final = 30
_ROOT: Final = Path(__file__).resolve().parents[1]
_PHRASES: Final = re.compile(
    r"\b(is told|are told|tells? of|told of|anew|so many|to be had|had for|at that|be it|whoever|wherefrom|thereby"
    r"|lately|no more|others'|somebody|nobody|deals? with|come to an end|gives? up on|keeps? house|on its way"
    r"|by itself|say whether|sees? to it|who has|who is|he|him|his)\b"
)
_SENTENCE_END: Final = re.compile(
    r"(?<=[.!?:])\s+(?=[A-Z`*\[(])|\n\s*\n|\n(?=\s*(?:[*-]|\d+\.)\s)|\n(?=\s*[\w*]+(?:, [\w*]+)*: )"
)
"""The last case is an entry of a list of arguments or attributes."""
_CODE: Final = re.compile(
    r"^\s*```.*?^\s*```|^\|[^\n]*$|^\s*>>>[^\n]*$|(?<=::\n\n)(?:    [^\n]*\n|\n)+|^=+ +=+$.*^=+ +=+$",
    re.MULTILINE | re.DOTALL,
)


def findings(file: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the lines of a file's sentences to look at, why, and the sentences."""
    text = file.read_text()
    for line, passage in _passages(file, text):
        for sentence in _SENTENCE_END.split(_CODE.sub("\n\n", passage)):
            words = sentence.split()
            where = line + passage[: max(0, passage.find(sentence))].count("\n")
            shown = " ".join(words)
            found = _PHRASES.search(sentence)
            if found:
                yield where, found[0], shown
            elif len(words) > MOST_WORDS:
                yield where, f"{len(words)} words", shown


def _passages(file: Path, text: str) -> Iterator[tuple[int, str]]:
    if file.suffix == ".md":
        yield 1, text
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.plain_words", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument(
        "files", nargs="*", type=Path, help="to read; all Python and Markdown of the project by default"
    )
    files = parser.parse_args().files
    if not files:
        listed = subprocess.run(
            ("git", "ls-files", "*.py", "*.md"), cwd=_ROOT, capture_output=True, text=True, check=True
        )
        files = [_ROOT / name for name in listed.stdout.splitlines()]
    counts: Counter[Path] = Counter()
    for file in files:
        for line, what, sentence in findings(file):
            counts[file] += 1
            print(f"{file}:{line}: {what}: {sentence[:160]}")
    for file, count in counts.most_common():
        print(f"{count:5} {file}")
    print(f"{counts.total():5} in all")


if __name__ == "__main__":
    main()

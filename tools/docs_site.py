"""Gathers the pages of the site that ``make docs-site`` builds (mkdocs.yml), in build/site-pages.

mkdocs knows pages by their path in one directory, and refuses links that leave it. So that directory mirrors the
repository by symbolic links: docs/, the pages outside it, and each other file that a page links to. One relative link
then works in the repository and in the site. The reference pages are generated from the sources of the public modules,
so that no public name can be missing.
"""

from __future__ import annotations

import ast
import re
import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PAGES: Final = ROOT / "build" / "site-pages"
"""The docs_dir of mkdocs.yml."""

OUTSIDE: Final = (
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"),
    *("examples/README.md", "tools/README.md"),
)
"""Pages outside docs/."""

REFERENCE: Final[Mapping[str, str]] = tomllib.loads(Path(__file__).with_name("reference.toml").read_text("utf-8"))
"""Public module -> the head of its page, reference/MODULE.md."""

_INHERITED: Final = "    options:\n      inherited_members: true\n"
_OPTIONS: Final[Mapping[str, str]] = {"shmaccum": _INHERITED}
"""Module -> options of its names. ProducerConfig inherits its settings; an error would repeat what all inherit."""

_THEIRS: Final = frozenset(("KafkaError", "KafkaException"))
"""Names of `shmaccum.compat.confluent` that are confluent-kafka's own classes, where that is installed."""

_METHODS: Final[Mapping[str, str]] = {
    "shmaccum.Producer": "shmaccum._core.Producer.send",
    "shmaccum.AsyncProducer": "shmaccum._core.AsyncProducer.send",
}
"""Class -> a function that is its method, which mkdocstrings would leave out."""

_LINK: Final = re.compile(r"\]\(([^)\s:#]+)(?:#[^)\s]*)?\)")


def gather(root: Path = ROOT, pages: Path = PAGES) -> None:
    """Replace the directory ``pages`` by the site's pages: links into the repository, and the reference."""
    shutil.rmtree(pages, ignore_errors=True)
    documents = [*OUTSIDE, *(path.relative_to(root).as_posix() for path in root.glob("docs/**/*") if path.is_file())]
    for name in {*documents, *linked_files(root, documents)}:
        page = pages / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.symlink_to(root / name)
    for module in REFERENCE:
        page = pages / "reference" / f"{module}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(reference_page(root, module), encoding="utf-8")


def linked_files(root: Path, documents: Iterable[str]) -> Iterator[str]:
    """Yield the path of every file of the repository to which one of the Markdown documents links."""
    for document in documents:
        if document.endswith(".md"):
            for target in _LINK.findall((root / document).read_text(encoding="utf-8")):
                path = (root / PurePosixPath(document).parent / target).resolve()
                if path.is_file() and path.is_relative_to(root):
                    yield path.relative_to(root).as_posix()


def reference_page(root: Path, module: str) -> str:
    """Return the Markdown of a module's page: a mkdocstrings directive for each public name."""
    options, entries = _OPTIONS.get(module, ""), []
    for name, code in public_names(root, module).items():
        heading = f"    options:\n      heading: {name} ({code})\n" if code else ""
        entries.append(f"::: {module}.{name}\n{options}{heading}")
        if method := _METHODS.get(f"{module}.{name}"):
            heading = f"      heading: {method.removeprefix('shmaccum._core.')}\n"
            entries.append(f"::: {method}\n    options:\n      heading_level: 3\n{heading}")
    return "\n".join([REFERENCE[module], *entries])


def public_names(root: Path, module: str) -> dict[str, str]:
    """Return a module's public names, each with its code if it is an error's, read from the source.

    They are the ``__all__`` of a package that only collects names, and else the module's own classes and functions. An
    import of them can need Spark.

    Raises:
        ValueError: the package has no ``__all__``.
    """
    path = root.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(source.read_text(encoding="utf-8")).body
    if path.is_dir() and not any(isinstance(node, ast.ClassDef) for node in body):
        for node in body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return dict.fromkeys((name for name in ast.literal_eval(node.value) if name not in _THEIRS), "")
        raise ValueError(f"{module} has no __all__: add one, or remove the module from REFERENCE")
    names = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = "".join(ast.unparse(word.value) for word in node.keywords if word.arg == "code")
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = ""
    return {name: code for name, code in sorted(names.items()) if not name.startswith("_")}


if __name__ == "__main__":
    gather()

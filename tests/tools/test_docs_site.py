"""The pages of the site: every link of the repository leads to a file among them, every public name has its entry."""

from __future__ import annotations

from pathlib import Path

import shmaccum.errors
import shmaccum.opentelemetry
import shmaccum.spark
from tools import docs_site


def test_a_linked_file_outside_docs_is_gathered_at_its_path(tmp_path: Path) -> None:
    root, pages = tmp_path / "root", tmp_path / "pages"
    files = {name: name for name in (*docs_site.OUTSIDE, "shmaccum/sender/loop.py", "outside.txt")}
    files["docs/inside/loop.md"] = "[a](../../shmaccum/sender/loop.py#L3) [b](../../missing.py) [c](../../../other)"
    files |= {f"{module.replace('.', '/')}/__init__.py": '__all__ = ["Name"]' for module in docs_site.REFERENCE}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (tmp_path / "other").write_text("outside the repository")
    pages.mkdir()
    (pages / "stale.md").write_text("of an earlier build")

    docs_site.gather(root, pages)

    gathered = {path.relative_to(pages).as_posix(): path.read_text() for path in pages.rglob("*") if path.is_file()}
    reference = {name: gathered.pop(name) for name in list(gathered) if name.startswith("reference/")}
    linked = {*docs_site.OUTSIDE, "docs/inside/loop.md", "shmaccum/sender/loop.py"}
    assert gathered == {name: files[name] for name in linked}
    assert sorted(reference) == sorted(f"reference/{module}.md" for module in docs_site.REFERENCE)


def test_the_reference_has_every_public_name() -> None:
    for module in (shmaccum, shmaccum.errors, shmaccum.opentelemetry, shmaccum.spark):
        page = docs_site.reference_page(docs_site.ROOT, module.__name__)
        names = [line.removeprefix("::: ") for line in page.splitlines() if line.startswith("::: ")]
        methods = [f"shmaccum._core.{name}.send" for name in ("Producer", "AsyncProducer") if module is shmaccum]
        public = getattr(module, "__all__", None) or [
            name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__
        ]
        assert sorted(names) == sorted([*(f"{module.__name__}.{name}" for name in public), *methods])

"""Pages of the site that are not files in docs/: those of other folders, each command's help, and the Python API."""

from __future__ import annotations

import io
import re
import runpy
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from ckh.cli import run
from ckh.ops import all_requested

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
# File of the repository -> its page.
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "data/README.md": "data.md",
    "models/README.md": "models.md",
    "benchmarks/README.md": "benchmarks.md",
}
_LINK = re.compile(r"(\[[^\]]*\]\()(?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    pages = {page: (ROOT / source).read_text(encoding="utf-8") for source, page in OUTSIDE.items()}
    pages["commands.md"] = "# Commands\n\n" + "\n".join(_helps())
    pages["api.md"] = "# Python API\n\n" + "\n\n".join(f"::: ckh.{name}" for name in (*_public(), "shapes"))
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links between files of the repository to their pages."""
    del config, files
    sources = {made: source for source, made in OUTSIDE.items()}
    folder = (ROOT / sources.get(page.file.src_uri, f"docs/{page.file.src_uri}")).parent

    def linked(match: re.Match[str]) -> str:
        path = (folder / match[2]).resolve().relative_to(ROOT).as_posix()
        if path in OUTSIDE:
            return f"{match[1]}{OUTSIDE[path]}{match[3] or ''})"
        if path.startswith("docs/"):
            return f"{match[1]}{path.removeprefix('docs/')}{match[3] or ''})"
        return f"`{path}`"  # a file that is no page

    return _LINK.sub(linked, markdown)


def _public() -> list[str]:
    import ckh

    return list(ckh.__all__)


def _helps() -> Iterator[str]:
    """The help of each command and subcommand, and of the problems of each operation, below headings."""
    for words, text in runpy.run_path(str(ROOT / "docs" / "_man.py"))["helps"]():
        yield f"{'##' if len(words) == 1 else '###'} ckh {' '.join(words)}\n\n```text\n{text}```\n"
    yield "## Problems by operation\n"
    for op in all_requested():
        printed = io.StringIO()
        with redirect_stdout(printed):
            run(["predict", "--op", op, "--help"])
        panel = printed.getvalue().partition("\nProblem:\n")[2].partition("\n\n")[0]
        yield f"### {op}\n\n```text\n{panel}\n```\n"

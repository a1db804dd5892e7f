"""Where files of C are, and what is made of them. Imports nothing, since the build does it before ckh is installed."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).with_name("c")
EVALUATOR = Path(__file__).parents[1] / "ranking" / "csrc"
EVALUATOR_SOURCES = tuple(EVALUATOR / name for name in ("ckh_rank.c", "ckh_trees.c", "ckh_tests.c", "ckh_sets.c"))

_FIELDS = re.compile(r"^@\w+_FIELDS@$", re.MULTILINE)


def template(name: str) -> str:
    """A file that something is to be put into."""
    return (FOLDER / f"{name}.in").read_text(encoding="utf-8")


def plain_header() -> str:
    """The public header for sources that rank by sizes only: without kinds of problems."""
    return _FIELDS.sub("  int32_t unused;", template("ckh.h").replace("@ENUMS@", ""))

"""Headers of C that follow from files of C. Imports nothing, since the build does it before anything is installed."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).with_name("c")
EVALUATOR = Path(__file__).parents[1] / "rank" / "csrc" / "ckh_rank.c"

_STRUCTS = re.compile(r"^typedef struct \{\n(?:(?!^\}).*\n)*\} (?:ckh_rank_forest|ckh_rank_plan);$", re.MULTILINE)
_PROTOTYPES = re.compile(r"^(?:void|int32_t)[ *]+\*?ckh_rank_\w+\([^;{]*\);$", re.MULTILINE)
_FIELDS = re.compile(r"^@\w+_FIELDS@$", re.MULTILINE)


def template(name: str) -> str:
    """A file that something is to be put into."""
    return (FOLDER / f"{name}.in").read_text(encoding="utf-8")


def evaluator_header() -> str:
    """Declarations of the evaluator, as its source has them."""
    source = EVALUATOR.read_text(encoding="utf-8")
    declared = [*_STRUCTS.findall(source), *_PROTOTYPES.findall(source)]
    assert len(declared) > 2, "the evaluator declares its structs and functions"  # noqa: PLR2004
    return template("ckh_rank.h").replace("@DECLARATIONS@", "\n\n".join(declared))


def plain_header() -> str:
    """The public header for sources that rank by sizes only: without kinds of problems."""
    return _FIELDS.sub("  int32_t unused;", template("ckh.h").replace("@ENUMS@", ""))

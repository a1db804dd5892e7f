"""Named sets of problems, from the lists in this folder, and problem files; README.md states the lists' sources.

Files are text (one canonical problem per line), CSV with AMD's columns, JSON (list of problems), or AMD's Python.
Entries that are not understood are left out and counted.

Each problem occurs once in a set, in a fixed order. No training set of ckh (`train`, `train-*`, `host-train`) contains
a layer of `holdout`, whatever direction and dtype; `host-train` contains none at any batch size. AMD's own lists under
AMD's names (`training`, `validation`, `wide`, `edge`) are complete: they contain such layers.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError, UsageError
from ckh.files.python_lists import WrittenForm
from ckh.ops.grouped_conv.problem import CONV_COLUMNS, ConvProblem, parse_conv_problem
from ckh.ops.problem_files import is_problem_file, read_entries
from ckh.problems import Direction, dtype_name, unknown_set
from ckh.text.log import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ckh.files.account import Account

__all__ = ["load_problems", "problem_set", "set_names"]

_BATCHES = (1, 8)  # of `holdout`
_FOLDER = Path(__file__).parent
FAMILIES = (
    *("small", "medium", "large", "asymmetric", "tiny-batch", "big-batch", "grouped", "depthwise", "strided"),
    *("dilated", "3d-dense", "3d-strided"),
)


def _networks() -> dict[str, Callable[[], list[ConvProblem]]]:
    """Return, by name, functions that parse the layers of a network, which a heading of networks.txt names."""
    texts: dict[str, list[str]] = {}
    for line in (_FOLDER / "networks.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            texts[line[2:].partition(":")[0]] = layers = []
        else:
            layers.append(line)
    return {name: lambda lines=lines: list(map(parse_conv_problem, lines)) for name, lines in texts.items()}  # type: ignore[misc]


# A network's layers in execution order, with duplicates, at batch 1, forward and fp32. Fully connected classifiers are
# not convolutions; squeeze-and-excitation layers and ConvNeXt's pointwise layers are (1x1). Derived from torchvision's
# definitions, except U-Net (Ronneberger 2015 with padding; an up-convolution is the bwd_data of a 2x2 stride-2 layer).
NETWORKS = _networks()


def network(name: str) -> tuple[ConvProblem, ...]:
    """Return a network's distinct layers at batch 1."""
    return tuple(dict.fromkeys(NETWORKS[name]()))


@cache
def _holdout() -> tuple[ConvProblem, ...]:
    layers = dict.fromkeys(layer for name in NETWORKS for layer in network(name))
    return tuple(replace(layer, n=n) for n in _BATCHES for layer in layers)


@cache
def _grids() -> dict[str, list[dict[str, Any]]]:
    grids: dict[str, list[dict[str, Any]]] = json.loads((_FOLDER / "amd_grids.json").read_text(encoding="utf-8"))
    return grids


def _of_grids(name: str) -> Iterator[ConvProblem]:
    """Yield the problems of a list's grids, with duplicates, forward and fp32."""
    for grid in _grids()[name]:
        channels = [(*map(int, text.split("x")), 1)[:3] for text in grid["channels"].split()]
        axes = (grid.get("depths", [None]), grid["sizes"], channels, grid["batches"], grid["filters"])
        for depth, size, (c, k, g), n, filter_ in product(*axes):
            taps, stride, dilation = filter_["taps"], filter_.get("stride", 1), filter_.get("dilation", 1)
            pad = filter_.get("padding", dilation * (taps - 1) // 2)
            height, width = size if isinstance(size, list) else (size, size)
            deep: dict[str, Any] = {}
            if depth is not None:
                deep = {"ndim": 3, "di": depth, "z": taps, "pad_d": pad, "dilation_d": dilation}
                deep["stride_d"] = filter_.get("stride_d", 1)
            plane = (n, c, k, g, height, width, taps, taps, stride, stride, pad, pad, dilation, dilation)
            yield ConvProblem(Direction.FORWARD, *plane, **deep)


def family(name: str, variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's problems of one family for a direction, with duplicates, as forward fp32 problems."""
    yield from _of_grids(f"{name} {variant}")


def _families(variant: Direction, ndims: tuple[int, ...] = (2, 3)) -> Iterator[ConvProblem]:
    for name in FAMILIES:
        yield from (problem for problem in family(name, variant) if problem.ndim in ndims)


def _ordered(name: str) -> list[ConvProblem]:
    """Return the distinct problems of a coverage list in AMD's order: by N, G, C, K, input and filter."""
    names = ("n", "g", "c", "k", "hi", "wi", "y", "x", "stride_h", "stride_w", "pad_h", "pad_w")
    return sorted(set(_of_grids(name)), key=lambda problem: tuple(getattr(problem, field) for field in names))


def _without_holdout(problems: Iterable[ConvProblem]) -> Iterator[ConvProblem]:
    held_out = frozenset(_holdout())
    return (problem for problem in problems if problem not in held_out)


def training(variant: Direction) -> Iterator[ConvProblem]:
    """Yield AMD's training problems of a direction, with duplicates, as forward fp32; forward: MIOpen's first."""
    if variant is Direction.FORWARD:
        yield from read_problems(_FOLDER / "amd_miopen_shapes.csv")
    yield from _families(variant)


def validation(variant: Direction) -> Iterable[ConvProblem]:
    """Return AMD's validation problems of a direction, as forward fp32 problems."""
    is_forward = variant is Direction.FORWARD
    return read_problems(_FOLDER / "amd_validation.csv") if is_forward else _of_grids("backward validation")


# A set's problems, given the direction, which `problem_set` replaces.
_SETS: dict[str, Callable[[Direction], Iterable[ConvProblem]]] = {
    **{f"train-{name}": lambda v, name=name: _without_holdout(family(name, v)) for name in FAMILIES},  # type: ignore[misc]
    "train-2d": lambda v: _without_holdout(_families(v, (2,))),
    "train-3d": lambda v: _without_holdout(_families(v, (3,))),
    "train": lambda v: _without_holdout(_families(v)),
    # AMD's list whole, with hold-out layers; forward with 299 of its 300 MIOpen shapes.
    "training": training,
    # 300 forward, two of them twice; ten of each backward direction.
    "validation": validation,
    # AMD's forward shapes in 2D.
    "wide": lambda _: _ordered("wide"),
    "edge": lambda _: _ordered("edge"),
    "host-train": lambda _: read_problems(_FOLDER / "host_train.csv"),
    **{name: lambda _, name=name: network(name) for name in NETWORKS},  # type: ignore[misc]
    "holdout": lambda _: _holdout(),
    "host-holdout": lambda _: read_problems(_FOLDER / "host_holdout.csv"),
}


def set_names() -> tuple[str, ...]:
    """The names of all sets."""
    return tuple(_SETS)


def problem_set(name: str, variant: Direction = Direction.FORWARD, dtype: str = "fp32") -> tuple[ConvProblem, ...]:
    """Return the distinct problems of a set, in a fixed order."""
    if name not in _SETS:
        raise unknown_set(f"unknown problem set {name!r}", name, _SETS)
    return _problem_set(name, variant, dtype)


@cache
def _problem_set(name: str, variant: Direction, dtype: str) -> tuple[ConvProblem, ...]:
    variant = replace(_holdout()[0], variant=variant, dtype=dtype).variant  # rejects unknown ones
    base = dict.fromkeys(_SETS[name](variant))
    return tuple(replace(problem, variant=variant, dtype=dtype) for problem in base)


def load_problems(
    source: str,
    variant: str | None = None,
    dtype: str | None = None,
    default_dtype: str = "fp32",
    account: Account | None = None,
) -> tuple[ConvProblem, ...]:
    """Return the distinct problems of a named set or of a .txt, .csv, .json or .py file (see `read_problems`)."""
    direction = None if variant is None else Direction(variant)
    if source in _SETS:
        return problem_set(source, direction or Direction.FORWARD, dtype or default_dtype)
    if not is_problem_file(source):
        raise unknown_set(f"{source!r} is neither a problem set nor a .txt, .csv, .json or .py file", source, _SETS)
    return read_problems(source, direction, dtype, default_dtype, account)


REQUIRED = ("N", "C", "K", "Hi", "Wi", "Y", "X")
DEPTH = {"Di": 1, "Z": 1, "stride_d": 1, "pad_d": 0, "dilation_d": 1}
TEXTS = ("variant", "dtype", "layout")
# Columns of AMD's benchmark CSV and of ckh's results that do not describe the problem.
IGNORED = frozenset(
    {"kernel", "kernel_name", "problem_idx", "latency_ms", "tflops", "bandwidth_gb_s", "non_zero", "run_id", "is_valid"}
    | {"error_msg", "name", "id", "count", "Do", "Ho", "Wo"}
)
# Columns or keys of other names are ignored, unless they look like a size: then they are taken for a mistake.
_LIKE_A_SIZE = re.compile(
    r"[a-z]{1,2}|(stride|pad|dil|group|batch|n?dim|(data_?)?type|layout|direction).*", re.IGNORECASE
)
_KNOWN = (*CONV_COLUMNS, "ndim", *TEXTS)
# Other names of columns: ckh's fields, and AMD's name of the direction.
_OTHER_NAMES = {**{name: column for column, name in CONV_COLUMNS.items()}, "direction": "variant"}
# In AMD's Python files a problem has all its values as keyword arguments, anywhere in the file.
_IN_PYTHON = WrittenForm("GroupedConvProblem(N=..., C=..., ...)", ("GroupedConvProblem",))


def read_problems(
    source: str | Path,
    variant: Direction | None = None,
    dtype: str | None = None,
    default_dtype: str = "fp32",
    account: Account | None = None,
) -> tuple[ConvProblem, ...]:
    """Read the distinct problems of a file in order, which must have a direction and dtype if these are requested.

    CSV rows, JSON objects and problems in Python may omit all but N, C, K, Hi, Wi, Y, X; they are 3D if a depth column
    is not at its default; a 3D problem of depth 1 needs the column `ndim`. JSON objects may use AMD's columns or
    `ConvProblem`'s fields. Other columns and keys are ignored; a note names those of a CSV. From a Python file the
    literal problems are read (see `ckh.files.python_lists`).
    """

    def make(entry: object) -> ConvProblem:
        problem = _from_entry(entry, variant or Direction.FORWARD, dtype or default_dtype)
        for name, requested in (("variant", variant), ("dtype", dtype)):
            if requested is not None and requested != (stated := getattr(problem, name)):
                raise UsageError(
                    f"{name} is {stated}, but {requested} was requested",
                    f"request {stated} or change the file",
                    code="mismatch",
                )
        return problem

    return read_entries(Path(source), make, _header, TEXTS, _IN_PYTHON, account)


def _header(path: Path, line: int, header: list[str]) -> list[str]:
    header = ["variant" if name == "direction" else name for name in header]
    others = [column for column in header if column not in {*_KNOWN, *IGNORED}]
    problems = {
        "missing": [column for column in REQUIRED if column not in header],
        "unknown": [column for column in others if _LIKE_A_SIZE.fullmatch(column)],
        "repeated": sorted({column for column in header if header.count(column) > 1}),
    }
    for what, columns in problems.items():
        if columns:
            hint = "the columns are " + ", ".join(_KNOWN)
            raise DataError(f"{path}:{line}: {what} columns: {', '.join(map(repr, columns))}", hint, code="bad-header")
    if others:
        note(f"{path}: ignored columns: {', '.join(map(repr, others))}")
    return [name if name in _KNOWN else "" for name in header]


def _from_entry(entry: object, variant: Direction, dtype: str) -> ConvProblem:
    """The problem of an entry, of this direction and dtype unless it states others."""
    if isinstance(entry, str):
        return parse_conv_problem(entry)
    if not isinstance(entry, dict):
        raise UsageError(f"not a problem: {json.dumps(entry)[:80]}", code="bad-problem")
    given: dict[str, Any] = {key: value for key, value in entry.items() if key not in IGNORED}
    row = {_OTHER_NAMES.get(key, key): value for key, value in given.items()}
    if len(row) < len(given):
        raise UsageError("duplicate value, under AMD's name and under ckh's", code="duplicate-name")
    others = [key for key in row if key not in _KNOWN]
    if unknown := [key for key in others if _LIKE_A_SIZE.fullmatch(key)]:
        raise UsageError(f"unknown keys: {', '.join(map(repr, unknown))}", code="unknown-field")
    for key in others:
        del row[key]
    for key in TEXTS:
        if key in row and not isinstance(row[key], str):
            raise UsageError(f"{key} must be text, not {row[key]!r}", code="bad-field")
    return _problem(row, variant, dtype)


def _problem(row: dict[str, Any], variant: Direction, dtype: str) -> ConvProblem:
    if missing := [column for column in REQUIRED if column not in row]:
        raise UsageError(f"{', '.join(missing)} missing", code="missing-field")
    deep = any(column in row and row[column] != default for column, default in DEPTH.items())
    ndim = row.get("ndim", 3 if deep else 2)
    if type(ndim) is not int:
        raise UsageError(f"ndim must be 2 or 3, not {ndim!r}", code="out-of-range")
    fixed = {
        "variant": row.get("variant", variant),
        "dtype": dtype_name(row.get("dtype", dtype)),
        "layout": row.get("layout", ""),
        "ndim": ndim,
    }
    sizes = {name: row[column] for column, name in CONV_COLUMNS.items() if column in row}
    return ConvProblem(**{"g": 1, **sizes}, **fixed)

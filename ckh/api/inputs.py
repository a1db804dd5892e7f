"""Arguments of the Python API: problems, data in memory or in files, options by name, and how progress is shown."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import fields
from numbers import Integral, Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin, get_type_hints

from ckh.archs import default_arch
from ckh.data.dataset import Dataset, write_dataset
from ckh.declared import declarations
from ckh.errors import UsageError, WrongTypeError
from ckh.learn.answers.answering import Chooser
from ckh.ops import all_requested, as_problem, canonical_options, meant_operation, requested
from ckh.problems import Direction, as_integer, whole
from ckh.strenum import StrEnum
from ckh.text.progress import ProgressStyle, show_progress
from ckh.text.prose import one_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.ops.base import Problem


One: TypeAlias = "Dataset | Path | str"
Data: TypeAlias = "One | Iterable[One]"


@contextmanager
def files_of(data: Data) -> Iterator[list[Path]]:
    """The files of data; those of datasets in memory exist until the context ends."""
    several = [data] if isinstance(data, (Dataset, Path, str)) or not isinstance(data, Iterable) else list(data)
    with TemporaryDirectory(prefix="ckh-data-") as folder:
        yield [_file_of(given, Path(folder, f"data-{number}.parquet")) for number, given in enumerate(several)]


def _file_of(given: object, path: Path) -> Path:
    if isinstance(given, (Path, str)):
        return Path(given)
    if not isinstance(given, Dataset):
        raise WrongTypeError("data", "a ckh.Dataset or a path, or several", given)
    write_dataset(given, path)
    return path


def options_of(given: Mapping[str, Any], *groups: type) -> list[dict[str, Any]]:
    """Values by name, split into fields of dataclasses; choices become members of their enumerations, lists tuples."""
    names = [name for group in groups for name in _names(group)]
    if strange := sorted(given.keys() - set(names)):
        raise UsageError(f"unknown option {strange[0]!r}", one_of(strange[0], sorted(names)), code="unknown-field")
    return [{name: _value(group, name, given[name]) for name in _names(group) if name in given} for group in groups]


def _names(group: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(group))


def _value(group: type, name: str, value: Any) -> Any:
    kind, limits = get_type_hints(group)[name], declarations(group).get(name)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        if value not in list(kind):
            raise UsageError(f"unknown {name} {value!r}", one_of(value, kind), code="unknown-name")
        return kind(value)
    value = tuple(map(as_integer, value)) if isinstance(value, (list, tuple)) else as_integer(value)
    if not _is_of(kind, value):
        raise WrongTypeError(name, f"of type {getattr(kind, '__name__', kind)}", value)
    if limits is None or isinstance(value, str) or value is None or isinstance(value, tuple):
        return value
    low, high = limits.low, limits.high
    if (low is not None and value < low) or (high is not None and value > high):
        raise UsageError(f"{name} is {value}, allowed are {low} to {high}", code="out-of-range")
    return value


def _is_of(kind: Any, value: object) -> bool:
    """True if a value has the type of a field; numbers of NumPy count as Python's."""
    kinds = (
        [get_origin(part) or part for part in get_args(kind) or (kind,)] if get_origin(kind) is not tuple else [tuple]
    )
    numbers: dict[Any, Any] = {int: Integral, float: Real, Path: (str, Path), str: (str, Path)}
    return any(isinstance(value, numbers.get(kind, kind)) for kind in kinds)


def direction_of(variant: Direction | str | None) -> Direction | None:
    """A direction by its name; None: none is given."""
    if variant is not None and variant not in list(Direction):
        raise UsageError(f"unknown direction {variant!r}", one_of(variant, Direction), code="unknown-name")
    return None if variant is None else Direction(variant)


def problem(
    text: str | None = None,
    *,
    op: str | None = None,
    variant: str | None = None,
    dtype: str | None = None,
    arch: str | None = None,
    **sizes: Any,
) -> Problem:
    """A problem from its canonical text, or from sizes with the defaults of `ckh predict`.

    Args:
        text: the canonical text; no other argument goes with it.
        op: the operation; by default that of the sizes' names (`m` means a GEMM), else a convolution.
        variant: the direction; forward by default.
        dtype: the element type; by default that of the operation or of the architecture.
        arch: the architecture; by default this machine's GPU, else gfx950.
        sizes: options of `ckh predict` by name, e.g. n=16, c=256, stride=2, or m=128, n=1536, k=7168, layout="rcr".

    Raises:
        UsageError: it is impossible, or an option is unknown or goes with another operation.
    """
    kind = {"op": op, "variant": variant, "dtype": dtype, "arch": arch}
    if text is not None:
        if given := [*sizes, *(name for name, value in kind.items() if value is not None)]:
            raise UsageError(f"text and {given[0]} exclude each other", code="conflicting-options")
        return as_problem(text)
    options = canonical_options({**sizes, **kind})
    values = {name: options[name] for name in sizes}
    meant = options["op"] or meant_operation(values, all_requested())
    arch = default_arch() if options["arch"] is None else options["arch"]
    chosen = Chooser(None, arch, options["dtype"], meant)
    part = requested(chosen.op.name)
    kinds = {} if part is None else {option.name: option.kind for option in part.options}
    typed = {name: _as_typed(name, value, kinds.get(name)) for name, value in values.items()}
    return chosen.problem(typed, str(direction_of(variant) or ""), "predict")


def _as_typed(name: str, value: Any, kind: type | None) -> Any:
    """A value as the command line gives it: the text of a stride may be a number, or one for each axis."""
    if kind is str and not isinstance(value, str):
        return "x".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    return whole(name, value) if kind is int else value


def progress(style: str) -> None:
    """Choose how long work shows its progress, on stderr or in a notebook.

    Args:
        style: "auto" (bars on a terminal and in a notebook, else lines), "bars", "lines" or "none".

    Raises:
        UsageError: it is another text.
    """
    if style not in list(ProgressStyle):
        raise UsageError(f"unknown style {style!r}", one_of(style, ProgressStyle), code="unknown-name")
    show_progress(ProgressStyle(style))

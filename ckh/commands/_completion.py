"""Shell completion of option values by prefix. Errors complete nothing."""

from __future__ import annotations

from contextlib import suppress
from glob import escape, glob
from typing import TYPE_CHECKING

from ckh.errors import CkhError

if TYPE_CHECKING:
    from collections.abc import Iterable


def operations(incomplete: str) -> list[str]:
    """Names of operations."""
    from ckh.ops import operation_names

    return _starting(operation_names(), incomplete)


def architectures(incomplete: str) -> list[str]:
    """Names of architectures, or of GPUs if there is none."""
    with suppress(CkhError):
        from ckh.archs import arch_names, load_arch

        archs = _starting(arch_names(), incomplete)
        gpus = (gpu.lower().replace(" ", "") for name in arch_names() for gpu in load_arch(name).gpus)
        return archs or _starting(gpus, incomplete.lower())
    return []


def dtypes(incomplete: str) -> list[str]:
    """Element types."""
    from ckh.problems import DTYPE_BYTES

    return _starting(DTYPE_BYTES, incomplete)


def models(incomplete: str) -> list[str]:
    """Directories of the available models, and other directories."""
    known: list[str] = []
    with suppress(CkhError):
        from ckh.learn.models.artifact import list_models

        known = _starting((str(ref.path) for ref in list_models(quiet=True)), incomplete)
    return list(dict.fromkeys([*known, *sorted(glob(escape(incomplete) + "*/"))]))  # noqa: PTH207 - as it was typed


def problem_sets(incomplete: str) -> list[str]:
    """Names of the problem sets of all operations, and files."""
    from ckh.ops import operation, operation_names

    sets = dict.fromkeys(name for op in operation_names() for name in operation(op).problems.set_names())
    return [*_starting(sets, incomplete), *sorted(glob(escape(incomplete) + "*"))]  # noqa: PTH207 - as it was typed


def sources(incomplete: str) -> list[str]:
    """Names of the ready models and networks, and files."""
    from ckh.shapes.sources import ready_names

    return [*_starting(ready_names(), incomplete), *sorted(glob(escape(incomplete) + "*"))]  # noqa: PTH207 - as it was typed


def rule_sets(incomplete: str) -> list[str]:
    """Names of the rule sets of all operations."""
    from ckh.kernels.lists import RuleSets
    from ckh.ops import operation, operation_names, part_of

    parts = (part_of(op, op.kernels.rule_sets, RuleSets) for op in map(operation, operation_names()))
    return _starting(dict.fromkeys(name for part in parts if part is not None for name in part.names), incomplete)


def input_formats(incomplete: str) -> list[str]:
    """Names of the input formats."""
    from ckh.data.readers import readers

    return _starting(readers(), incomplete)


def output_formats(incomplete: str) -> list[str]:
    """Names of the output formats."""
    from ckh.data import conversion

    return _starting([conversion.PARQUET, *conversion.output_formats()], incomplete)


def _starting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

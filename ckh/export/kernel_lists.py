"""`ckh export --to amd-registry`: kernel lists for AMD's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import NoKernelError, UsageError
from ckh.export.answered import answered
from ckh.kernels.lists import ListFormat
from ckh.ops import part_of
from ckh.text.log import warn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ckh.archs import ArchSpec
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.answers.ranking import Ranking
    from ckh.ops.base import AnyOperation, Kernel

TARGET = "amd-registry"
_TOP = 5  # kernels of each problem
_HOW_TO = """# Kernels for AMD's tools

{rows}

- A registry is read by `GroupedConvRegistry.from_json` of CK's dispatcher, or lists GEMMs as `export_registry_json` of
  the dispatcher does. The Python reader of convolutions takes no double buffer, split image, two stages,
  specialization or padding from a registry: {lost} of the {count} kernels here have such an option, which is in their
  names alone.
- A configuration is for the tile engine's instance builder, which builds the product of its values: the smallest one
  that has all of these kernels.
- `--registry` of ckh's commands reads both.
"""


def registry_files(
    chooser: Chooser, registry: Path | None, problems: str | None, top: int | None, name: str
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Make the files of a list of this name, and the description of their contents for JSON.

    Its kernels are those of a registry, or the first `top` (or 5) of each problem of a set or file.
    """
    lists = part_of(chooser.op, chooser.op.kernels.lists, ListFormat)
    if lists is None:
        raise UsageError(
            f"AMD's registries have no kernels of {chooser.op.name}",
            "omit --op or name another",
            code="unsupported",
        )
    arch = load_arch(chooser.arch)
    kernels: Sequence[Kernel]
    if registry is not None:
        kernels = _of_file(registry, chooser.op, arch, chooser.dtype)
    else:
        rankings = _answers(chooser, str(problems))
        kernels = list(dict.fromkeys(best.kernel for ranking in rankings for best in ranking.best(top or _TOP)))
    files = lists.write(kernels, arch, name)
    report = {
        "to": TARGET,
        "op_type": chooser.op.name,
        "arch": arch.name,
        "kernels": [chooser.op.kernels.name(kernel) for kernel in kernels],
        "described": {name: {"form": file.form, "kernels": file.kernels} for name, file in files.items()},
    }
    rows = ["| file | form | kernels |", "|---|---|---|"]
    rows += [f"| `{name}` | {file.form} | {file.kernels} |" for name, file in files.items()]
    text = _HOW_TO.format(rows="\n".join(rows), count=len(kernels), lost=sum(map(_is_lost, kernels)))
    return {**{name: file.content for name, file in files.items()}, "README.md": text.encode()}, report


def _is_lost(kernel: Any) -> bool:
    """True if a convolution kernel has an option without a field in the registry."""
    flags = ("double_smem_buffer", "split_image", "two_stage", "explicit_gemm", "streamk")
    is_special = getattr(kernel, "specialization", "default") != "default"
    return is_special or any(getattr(kernel, flag, False) for flag in flags)


def _of_file(path: Path, op: AnyOperation, arch: ArchSpec, dtype: str) -> tuple[Kernel, ...]:
    from ckh.bench.planning.registry import read_registry

    registry = read_registry(path, op)
    registry.require(arch.name)
    kernels = registry.built(arch, dtype)
    if not kernels:
        raise NoKernelError(f"{path} describes no kernel that {arch.name} builds for {dtype}")
    return tuple(kernels)


def _answers(chooser: Chooser, source: str) -> list[Ranking]:
    """Rankings of the problems with applicable kernels."""
    rankings = list(answered(chooser, chooser.load_problems(source, None, None)))
    failures = [failure for ranking in rankings if (failure := ranking.failure)]
    if failures and len(failures) == len(rankings):
        raise failures[0]
    if failures:
        warn(
            f"{len(failures)} of {len(rankings)} problems have no kernel and are left out; {failures[0].message}",
            "no-kernel",
        )
    return [ranking for ranking in rankings if len(ranking.order)]

"""Summary of a kernel's machine code: of the locally compiled code, else of the shipped registers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from math import prod
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.isa.codefile import waves_by
from ckh.isa.source import of_compiled
from ckh.kernels.compiled import shipped
from ckh.learn.analytic.estimate import compiled_blocks_per_cu

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.isa.anatomy import Anatomy
    from ckh.kernels.compiled import ShippedKernel
    from ckh.ops.base import AnyOperation, Problem
    from ckh.schema import Resources


@dataclass(frozen=True, slots=True)
class Brief:
    """A kernel's registers and occupancy.

    Attributes:
        kernel: its complete name.
        resources: registers and LDS of the function that runs; for shipped registers, the maximum of all functions.
        blocks_per_cu: resident blocks per compute unit.
        bound_by: the resource that limits them.
        clocks: clocks per iteration over K that a block keeps each pipe busy; empty without local code.
    """

    kernel: str
    resources: Resources
    blocks_per_cu: int
    bound_by: str
    clocks: Mapping[str, float]


def brief(op: AnyOperation, name: str, problem: Problem, arch: str) -> Brief | None:
    """Return a kernel's summary; None if it was not compiled here and its registers do not ship.

    A name that omits fields, as AMD's do, matches the only shipped kernel that agrees in all others.
    """
    known = _shipped(op, arch)
    agree = [item for item in known if _agrees(item, op.kernels.parse(name))]
    complete = op.kernels.name(agree[0]) if len(agree) == 1 else name
    if (anatomy := of_compiled(complete, problem, arch)) is not None:
        return _of_anatomy(anatomy)
    return _of_shipped(complete, known[agree[0]].resources, agree[0], arch) if len(agree) == 1 else None


@cache
def _shipped(op: AnyOperation, arch: str) -> dict[Any, ShippedKernel]:
    return {op.kernels.parse(name): item for name, item in shipped(arch, op.name).items()}


def _agrees(complete: Any, kernel: Any) -> bool:
    """True if a complete kernel has every field value that is set in another one."""
    stated = ((field.name, getattr(kernel, field.name)) for field in fields(kernel))
    return all(getattr(complete, name) == value for name, value in stated if value is not None)


def _of_anatomy(anatomy: Anatomy) -> Brief:
    main = next(function for function in anatomy.functions if function.runs)
    clocks = {} if anatomy.trip is None else anatomy.trip.clocks
    return Brief(anatomy.kernel, main.resources, main.blocks_per_cu, main.bound_by, clocks)


def _of_shipped(name: str, taken: Resources, kernel: Any, arch_name: str) -> Brief:
    arch = load_arch(arch_name)
    waves = prod(getattr(kernel, f"wave_{axis}") for axis in "mnk")
    allowed = waves_by(taken.vgprs + taken.agprs, taken.sgprs, taken.lds_bytes, waves, arch)
    return Brief(name, taken, compiled_blocks_per_cu(taken, waves, arch), min(allowed, key=allowed.__getitem__), {})

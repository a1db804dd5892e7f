"""A model's knowledge of what it answers: the device, the problem's sizes and the kernels were measured, or not.

An answer is given all the same; what stands here says why to trust it less. Imports next to nothing.
"""

from __future__ import annotations

import os
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh import machine
from ckh.log import note
from ckh.paths import user_data_dir
from ckh.prose import shell_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ckh.learn.measured_set import MeasuredSet, NearestProblem
    from ckh.ops.base import Problem

_HOST = "host"
_BETWEEN = ", "
_DRIVER = Path("/sys/class/kfd")  # of AMD GPUs
_FAMILIES_NAMED = 3


class Outside(NamedTuple):
    """A size that lies outside of what was measured, and by which factor."""

    size: str
    value: int
    least: int
    most: int

    @property
    def factor(self) -> float:
        """How many times as large as the largest, or as small as the least, it is."""
        pair = (self.value, self.most) if self.value > self.most else (self.least, self.value)
        return pair[0] / max(pair[1], 1)

    def __str__(self) -> str:
        """In words."""
        bound = f"at most {self.most}" if self.value > self.most else f"at least {self.least}"
        return f"{self.size} = {self.value} is {self.factor:.3g} times outside of what was measured ({bound})"


class Known(NamedTuple):
    """The parts of a problem, a device and kernels that a model does not know.

    Attributes:
        device: why figures are another device's; empty if they are this one's, or nothing says which that is.
        outside: sizes of the problem that lie outside of what was measured.
        nearest: the nearest measured problem, where any does.
        families: kinds of kernels among those shown of which none was measured.
        left_out: kinds of kernels that are not ranked because none was measured; no doubt about those that are.
        unknown_kernels: how many of the kernels that a user listed, and that apply, are of such kinds.
        source: why the whole answer is of something else; empty if it is not.
    """

    device: str = ""
    outside: tuple[Outside, ...] = ()
    nearest: NearestProblem | None = None
    families: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    source: str = ""
    unknown_kernels: int = 0

    @property
    def doubts(self) -> tuple[str, ...]:
        """Each part in words that the model does not know of the ranked kernels' answer; none if all is known."""
        near = "" if self.nearest is None else f"; the nearest that was: {self.nearest.problem}"
        sizes = ["; ".join(map(str, self.outside)) + near] if self.outside else []
        named = ", ".join(self.families[:_FAMILIES_NAMED])
        count = f": {self.unknown_kernels} of the listed kernels" if self.unknown_kernels else ""
        kinds = [f"no kernel of {named} was measured{count}"] if self.families else []
        return tuple(filter(None, (self.source, self.device, *sizes, *kinds)))

    @property
    def not_ranked(self) -> str:
        """The kinds of kernels that are left out, in words; empty if there are none."""
        return f"no kernel of {', '.join(self.left_out)} was measured, so none is ranked" if self.left_out else ""

    @property
    def apart(self) -> str:
        """What a figure of the measurements does not hold for, as the end of a sentence; empty if it holds here."""
        device = ["on the measured device, not on this one"] if self.device else []
        sizes = ["for measured sizes, not for these"] if self.outside else []
        kinds = ["for measured kinds of kernels, not for all of these"] if self.families else []
        return ", and ".join(device + sizes + kinds)

    @property
    def line(self) -> str:
        """All in a line; empty if all is known."""
        return "" if not self.doubts else f"not known: {'; '.join(self.doubts)}"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        from dataclasses import asdict

        return {
            "is_known": not self.doubts,
            "device": self.device or None,
            "outside": [{**one._asdict(), "factor": one.factor} for one in self.outside],
            "nearest": None if self.nearest is None else asdict(self.nearest),
            "families": list(self.families),
            "unknown_kernels": self.unknown_kernels,
            "left_out": list(self.left_out),
        }


ALL_KNOWN = Known()


def not_measured(source: str) -> Known:
    """The knowledge of an answer that a model of something else gives, or an estimate."""
    return Known(source=f"nothing was measured for this; {source} answers")


def find_known(
    problem: Problem,
    arch: str,
    device: str,
    num_cus: int | None,
    measured: Callable[[], MeasuredSet | None],
    limits: Mapping[str, Sequence[int]],
    families: Sequence[str],
    left_out: Iterable[str],
) -> Known:
    """Find the parts of an answer that a model does not know.

    Args:
        problem: what is to be computed.
        arch: the model's architecture.
        device: name of the device that was measured; empty if unknown.
        num_cus: compute units of that device, if they are known and no part of the problem.
        measured: reads what was measured; called where the problem lies outside.
        limits: least and largest of each size that was measured; empty if unknown.
        families: kinds of kernels of the answer that were never measured.
        left_out: kinds of kernels that are not ranked because none was measured.
    """
    outside = tuple(
        Outside(size, value, least, most)
        for size, (least, most) in limits.items()
        if not least <= (value := getattr(problem, size)) <= most
    )
    near = None
    if outside and (found := measured()) is not None and found.problems:
        (near,) = found.nearest(problem)
    return Known(other_device(arch, device, num_cus), outside, near, tuple(families), tuple(left_out))


def other_device(arch: str, device: str, num_cus: int | None) -> str:
    """Why figures are another device's than this machine's; empty if they are its own, or nothing says so."""
    if arch == _HOST:
        here = machine.processor_name()
        return "" if not device or here in device.split(_BETWEEN) else f"measured on {device}, this CPU is {here}"
    if num_cus is None or not os.path.exists(_DRIVER):  # noqa: PTH110 - quicker
        return ""
    from ckh.gpus import visible_gpus

    here_cus = {gpu.num_cus for gpu in visible_gpus() if gpu.arch == arch}
    if not here_cus or num_cus in here_cus:
        return ""
    return f"measured on {num_cus} CUs, the {arch} here has {', '.join(map(str, sorted(here_cus)))}"


def offer_once(problem: Problem, op: str, arch: str, device: str, model: Path) -> None:
    """Tell a person at a terminal, once, how to measure and train for a CPU that a host model was not measured on.

    That it was said is remembered by a file in the user's folder; where none can be written it is said again.
    """
    if arch != _HOST or not sys.stderr.isatty() or not other_device(arch, device, None):
        return
    here = machine.processor_name()
    which = zlib.crc32(f"{device} {here} {model.name}".encode(errors="surrogateescape"))
    mark = user_data_dir() / "offered" / f"{which:08x}"
    if mark.exists():
        return
    with suppress(OSError):
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()
    direction = getattr(problem, "variant", None)
    commands = _retraining(op, None if direction is None else str(direction), problem.dtype, model)
    takes = "15 minutes of measuring and a few of training continue it for this CPU"
    note("\n".join([f"{model.name} was measured on {device}; {takes}:", *commands]))


def _retraining(op: str, variant: str | None, dtype: str, model: Path) -> tuple[str, ...]:
    """The commands that measure for a quarter of an hour and train for this CPU."""
    direction = "" if variant is None else f" --variant {variant}"
    own = user_data_dir() / "models" / model.name
    return (
        f"ckh bench --op {op}{direction} --dtype {dtype} --device host --plan auto --budget 15m --out runs/here",
        "ckh convert runs/here --out here.parquet",
        f"ckh train --op {op}{direction} --data here.parquet --warm-start nearest --out {shell_word(own)}",
    )

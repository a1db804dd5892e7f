"""Out-of-distribution checks of an answer: device, sizes and kernels outside the training data.

They add caveats to the answer. Imports little, since quick answers use it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.documents import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from ckh.learn.models.measured_set import MeasuredSet, NearestProblem
    from ckh.ops.base import Problem

OUT_OF_DISTRIBUTION = "out of distribution"
_HOST = "host"
_BETWEEN = ", "
_DRIVER = Path("/sys/class/kfd")  # of AMD GPUs
_FAMILIES_NAMED = 3


class Outside(NamedTuple):
    """A size outside the measured range."""

    size: str
    value: int
    least: int
    most: int

    @property
    def factor(self) -> float:
        """Ratio to the largest measured value, or of the smallest measured value to this one."""
        pair = (self.value, self.most) if self.value > self.most else (self.least, self.value)
        return pair[0] / max(pair[1], 1)

    def __str__(self) -> str:
        """Text for a caveat."""
        if self.value > self.most:
            return f"{self.size} = {self.value} is {self.factor:.3g} times the largest measured ({self.most})"
        return f"{self.size} = {self.value} is 1/{self.factor:.3g} of the smallest measured ({self.least})"


class Known(NamedTuple):
    """Out-of-distribution parts of an answer.

    Attributes:
        device: device mismatch in words; empty if measured on this device, or unknown.
        outside: sizes outside the measured range.
        nearest: nearest measured problem, if a size is outside.
        families: kernel families in the answer without measurements.
        left_out: kernel families that are not ranked, for lack of measurements.
        unknown_kernels: number of applicable kernels of a user's list in such families.
        source: source of an answer without measurements of this GPU; empty otherwise.
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
        """Caveats in words; empty inside the training distribution."""
        near = "" if self.nearest is None else f"; nearest measured problem: {self.nearest.problem}"
        sizes = ["; ".join(map(str, self.outside)) + near] if self.outside else []
        named = ", ".join(self.families[:_FAMILIES_NAMED])
        count = f" ({self.unknown_kernels} of the listed kernels)" if self.unknown_kernels else ""
        kinds = [f"no measurements of {named}{count}"] if self.families else []
        return tuple(filter(None, (self.source, self.device, *sizes, *kinds)))

    @property
    def not_ranked(self) -> str:
        """Text on kernel families that are not ranked; empty if there are none."""
        return f"not ranked, for lack of measurements: {', '.join(self.left_out)}" if self.left_out else ""

    @property
    def apart(self) -> str:
        """What the prediction interval is not calibrated for; empty inside the training distribution."""
        device = ["this device"] if self.device else []
        sizes = ["these sizes"] if self.outside else []
        kinds = ["all of these kernels"] if self.families else []
        return ", ".join(device + sizes + kinds)

    @property
    def line(self) -> str:
        """All caveats on one line; empty inside the training distribution."""
        return "" if not self.doubts else f"{OUT_OF_DISTRIBUTION}: {'; '.join(self.doubts)}"

    def __repr__(self) -> str:
        return f"<ckh.Known {self.line or 'all'}>"

    def document(self) -> dict[str, Any]:
        """Format the caveats as JSON (`answer_document.KnownDocument`)."""
        return {
            "is_known": not self.doubts,
            "device": self.device or None,
            "outside": [{**size._asdict(), "factor": size.factor} for size in self.outside],
            "nearest": None if self.nearest is None else fields_of(self.nearest),
            "families": list(self.families),
            "unknown_kernels": self.unknown_kernels,
            "left_out": list(self.left_out),
        }


def not_measured(source: str) -> Known:
    """Caveat of an answer by a model of another GPU, or an estimate."""
    return Known(source=f"no measurements of this GPU and element type, ranked by {source}")


def find_known(
    problem: Problem,
    device: str,
    measured: Callable[[], MeasuredSet | None],
    limits: Mapping[str, Sequence[int]],
    families: Sequence[str],
    left_out: Iterable[str],
) -> Known:
    """Find the out-of-distribution parts of an answer."""
    outside = tuple(
        Outside(size, value, least, most)
        for size, (least, most) in limits.items()
        if not least <= (value := getattr(problem, size)) <= most
    )
    near = None
    if outside and (measured_set := measured()) is not None and measured_set.problems:
        (near,) = measured_set.nearest(problem)
    return Known(device, outside, near, tuple(families), tuple(left_out))


def other_device(arch: str, device: str, num_cus: int | None, asked_cus: int = 0) -> str:
    """Device mismatch between the measurements and this machine in words; empty if none is known."""
    if arch == _HOST:
        from ckh.hardware import machine

        here = machine.processor_name()
        return "" if not device or here in device.split(_BETWEEN) else f"measured on {device}, this CPU is {here}"
    if num_cus is not None and asked_cus:
        return "" if num_cus == asked_cus else f"measured on {num_cus} CUs, the answer is for {asked_cus}"
    if num_cus is None or not os.path.exists(_DRIVER):  # noqa: PTH110 - quicker
        return ""
    from ckh.hardware.gpus import visible_gpus

    here_cus = {gpu.num_cus for gpu in visible_gpus() if gpu.arch == arch}
    if not here_cus or num_cus in here_cus:
        return ""
    return f"measured on {num_cus} CUs, the {arch} here has {', '.join(map(str, sorted(here_cus)))}"

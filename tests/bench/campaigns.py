"""Runs of a device on a few problems, in one folder, as `ckh bench` makes them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from ckh.bench.supervision import campaign as campaign_module
from ckh.bench.supervision.campaign import Campaign, Outcome
from ckh.bench.supervision.limits import BenchLimits
from ckh.data.journal import ResultRow, read_journal
from ckh.data.settings import Given
from tests.bench.faults import PROBLEM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest

    from ckh.ops.grouped_conv.problem import ConvProblem

LIMITS = BenchLimits(timeout_s=20.0, jobs=2)
HANGING = BenchLimits(timeout_s=2.0, jobs=2)  # of runs with kernels that hang


class Runs:
    """Runs of all kernels of a device, which `Campaign` opens; the device has their names."""

    def __init__(
        self,
        folder: Path,
        device: Any,
        patch: pytest.MonkeyPatch,
        problems: Sequence[ConvProblem] = (PROBLEM,),
        limits: BenchLimits = LIMITS,
    ) -> None:
        self.out, self.device, self._limits = folder / "run", device, limits
        self._problems, self._kernels = folder / "problems.txt", folder / "kernels"
        self._problems.write_text("\n".join(problem.canonical() for problem in problems), encoding="utf-8")
        self._kernels.write_text("\n".join(device.names), encoding="utf-8")
        patch.setattr(campaign_module, "open_device", lambda _kind, _options: device)

    def campaign(self, *, resume: bool = False, **given: Any) -> Campaign:
        """A run that has not started."""
        named = {"problems": str(self._problems), "kernels": str(self._kernels)}
        return Campaign("host", Given(**named | given), self.out, resume=resume)

    def run(self, *, resume: bool = False, limits: BenchLimits | None = None, **given: Any) -> Outcome:
        """Measure."""
        return self.campaign(resume=resume, **given).run(limits or self._limits)

    @property
    def rows(self) -> tuple[ResultRow, ...]:
        """All rows of the journal."""
        return read_journal(self.out).rows

    def of_kernel(self, number: int) -> list[ResultRow]:
        """Rows of the first pass of a kernel."""
        return [row for row in self.rows if row.kernel == self.device.names[number] and not row.remeasured]

    @property
    def first_pass(self) -> Counter[tuple[str, str]]:
        """Number of rows of each pair, except remeasured leaders."""
        return Counter((row.problem, row.kernel) for row in self.rows if not row.remeasured)

    @property
    def all_pairs(self) -> Counter[tuple[str, str]]:
        """Every pair once."""
        problems = self._problems.read_text(encoding="utf-8").split()
        return Counter((problem, kernel) for problem in problems for kernel in self.device.names)

    def keep_lines(self, count: int, extra: bytes = b"") -> None:
        """Truncate the journal, as if the process had been killed then."""
        path = self.out / "journal.jsonl"
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:count]) + extra)

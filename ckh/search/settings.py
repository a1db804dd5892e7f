"""Settings of a search by measuring, from which the options of `ckh search measure` are derived."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ckh.bench.devices.device import DeviceOptions
from ckh.bench.isolated.timing import DEFAULT_SAMPLES
from ckh.bench.supervision.limits import DEFAULT_COMPILE_TIMEOUT_S, DEFAULT_TIMEOUT_S, BenchLimits
from ckh.data.settings import Settings
from ckh.declared import Declared, declarations, declared
from ckh.strenum import StrEnum

_GPU, _LIMITS = declarations(DeviceOptions), declarations(BenchLimits)


class TimedDevice(StrEnum):
    """The values of `--device`."""

    HOST = "host"
    HIP = "hip"


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Effort, device, limits and timing of a search by measuring."""

    evaluations: int = declared(
        Declared("Maximum number of kernels to try, including failures.  [500]", metavar="N", low=1), default=500
    )
    top: int = declared(Declared("Number of kernels to print.  [10]", low=1), default=10)
    seed: int = declared(Declared("Random seed.  [0]", low=0), default=0)
    budget_s: float | None = declared(_LIMITS["budget_s"], default=None)
    out: str | None = declared(
        Declared("Folder of the journal.  [runs/search-<arch>-<time>]", kind=Path, typed=("--out", "-o")), default=None
    )
    device: str | None = declared(
        Declared("Measure on host or hip; host where no GPU is.", kind=TimedDevice), default=None
    )
    samples: int = declared(declarations(Settings)["samples"], default=DEFAULT_SAMPLES)
    timeout_s: float = declared(_LIMITS["timeout_s"], default=DEFAULT_TIMEOUT_S)
    compile_timeout_s: float = declared(_LIMITS["compile_timeout_s"], default=DEFAULT_COMPILE_TIMEOUT_S)
    hipcc: str | None = declared(_GPU["hipcc"], default=None)
    ck_include: str | None = declared(_GPU["ck_include"], default=None)
    gpus: tuple[int, ...] | None = declared(
        Declared("hip: the GPU to use.  [the first]", metavar="N", low=0), default=None
    )
    cold: bool | None = declared(declarations(Settings)["cold"], default=None)
    jobs: int | None = declared(_LIMITS["jobs"], default=None)

    @property
    def limits(self) -> BenchLimits:
        """Limits of building and measuring."""
        return BenchLimits(self.budget_s, self.timeout_s, self.jobs, self.compile_timeout_s)

"""Options of `ckh search`, by what they go with."""

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


class StrategyName(StrEnum):
    """The values of `--strategy`."""

    SURROGATE = "surrogate"
    LOCAL = "local"
    DE = "de"
    RANDOM = "random"


class TimedDevice(StrEnum):
    """The values of `--device`."""

    HOST = "host"
    HIP = "hip"


@dataclass(frozen=True, slots=True)
class Effort:
    """How to search, and how many kernels to print; a strategy of None is the default."""

    strategy: str | None = declared(Declared("Search strategy; see above.", kind=StrategyName), default=None)
    budget: int = declared(Declared("Number of proposals, including failures.  [500]", low=1), default=500)
    top: int = declared(Declared("Number of kernels to print.  [10]", low=1), default=10)
    seed: int = declared(Declared("Random seed.  [0]", low=0), default=0)


@dataclass(frozen=True, slots=True)
class Measuring:
    """How proposals are measured; all of it needs --measure."""

    time_s: float | None = declared(Declared("Time budget of measuring, e.g. 10m.", metavar="TIME"), default=None)
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
    gpu: int | None = declared(Declared("hip: the GPU to use.  [the first]", low=0), default=None)
    cold: bool = declared(Declared("hip: empty the caches before every timed run.", typed=("--cold",)), default=False)

    def limits(self, jobs: int | None) -> BenchLimits:
        """The limits of bench, with so many compilers at a time; None: by cores and memory."""
        return BenchLimits(self.time_s, None, self.timeout_s, jobs, self.compile_timeout_s)

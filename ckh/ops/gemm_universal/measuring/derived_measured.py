"""Measuring an operation that is derived from `gemm_universal`: everything that such operations share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.bench.codegen.unit import UnsupportedKernelError
from ckh.bench.computation import HipEmission, HostEmission, Measured
from ckh.kernels.judging import given
from ckh.ops.gemm_universal.measuring import hip as gemm_hip
from ckh.ops.gemm_universal.measuring import measured as gemm
from ckh.ops.gemm_universal.measuring.hip_rules import missing, rules_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ckh.archs import ArchSpec
    from ckh.bench.computation import Computation, Trials
    from ckh.kernels.judging import Rule
    from ckh.kernels.pools import Pools
    from ckh.ops.gemm_universal.measuring.hip_rules import GemmHeaders

GEMM: Measured[Any, Any] = gemm.MEASURED
assert GEMM.host is not None
assert GEMM.hip is not None
_HOST, _HIP = GEMM.host, GEMM.hip


@dataclass(frozen=True, slots=True)
class DerivedHip:
    """How kernels of a derived operation are built for AMD GPUs."""

    module: str  # file of the operation's module, beside the folder `templates`
    problems: str  # default problem set to measure
    function: str  # substring of the mangled names of the kernels' GPU functions
    lacks: Rule  # rule of what headers lack besides what `gemm_universal` needs of them
    source: Callable[[Any, GemmHeaders], str]  # C++ source of a kernel that the headers can build
    of_pipeline: bool = True  # whether `lacks` is a rule of a pipeline alone, which headers then have or have not
    are_persistent: bool = True  # whether kernels may be persistent

    def rules(self, headers: GemmHeaders) -> tuple[Rule, ...]:
        """Return the rules for these headers: `gemm_universal`'s, and last the operation's own."""
        return *rules_of(headers), *given((self.lacks,), headers=headers)

    def emit(self, kernel: Any, headers: GemmHeaders, arch: ArchSpec) -> str:
        """Return the C++ source of one kernel for an architecture."""
        (own,) = given((self.lacks,), headers=headers)
        if reasons := list(own(kernel, arch)) or missing(kernel, headers, arch):
            raise UnsupportedKernelError("; ".join(reasons))
        return self.source(kernel, headers)

    def found(self, headers: GemmHeaders, plain: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        """Return the features of headers for these kernels, described, given those for `gemm_universal`'s."""
        if not self.of_pipeline:
            return dict(plain)
        (own,) = given((self.lacks,), headers=headers)
        left = tuple(name for name in plain["pipelines"] if not list(own.function(name)))
        named = {what: tuple(name for name in names if name in left) for what, names in plain.items()}
        features = {**named, "epilogues": plain["epilogues"]}
        return {what: names for what, names in features.items() if self.are_persistent or what != "persistent"}

    @property
    def emission(self) -> HipEmission[Any]:
        """The functions as `Measured` has them."""
        return hip_emission(self.module, self.problems, (self.function,), self.emit, self.rules, self._found)

    def _found(self, headers: GemmHeaders) -> dict[str, tuple[str, ...]]:
        return self.found(headers, _HIP.found(headers.common))


def hip_emission(
    module: str,
    problems: str,
    functions: tuple[str, ...],
    emit: Callable[[Any, GemmHeaders, ArchSpec], str],
    rules: Callable[[GemmHeaders], tuple[Rule, ...]],
    described: Callable[[GemmHeaders], Mapping[str, tuple[str, ...]]],
) -> HipEmission[Any]:
    """Return how kernels are built for AMD GPUs, from functions of headers' features for GEMM kernels."""
    return HipEmission(
        lambda kernel, headers, arch: emit(kernel, gemm.gemm_headers(headers), arch),
        (Path(module).parent / "templates" / "ck_tile", *_HIP.templates),
        problems,
        functions,
        lambda headers: described(gemm.gemm_headers(headers)),
        lambda headers: rules(gemm.gemm_headers(headers)),
        _HIP.compile_s,
    )


def host_emission(module: str, abi: str, problems: str) -> HostEmission[Any]:
    """Return how kernels are built for the CPU: `gemm_universal`'s, with exported functions in the header `abi`."""
    templates = (Path(module).parent / "templates" / "host", *_HOST.templates)
    return HostEmission(partial(gemm_hip.emit_for_host, abi=abi), templates, problems)


def derived_measured(
    op: str,
    pools: Pools[Any],
    bench_pools: Pools[Any],
    computation: Computation[Any],
    hip: HipEmission[Any],
    trials: Trials[Any, Any],
    host: HostEmission[Any] | None = None,
) -> Measured[Any, Any]:
    """Return how an operation is measured."""
    return Measured(
        computation=computation,
        host=host,
        hip=hip,
        problems=partial(gemm.problems_of_run, op=op),
        candidate_source=partial(gemm.candidates_of_run, op=op, pools=pools, bench_pools=bench_pools),
        reasons=pools.rules.check,
        trials=lambda: trials,
    )

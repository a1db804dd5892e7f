"""Pools: the kernels that AITER's tuners try for a family, as listed in kernels.txt, and their splits of K.

FBGEMM's are the kernels that its dispatch has ever named (state of August 2026).
A name is followed by its number (`kernelId`) in the lists of `NUMBERED_BY`. The numbers of CK Tile's kernels differ
between versions of AITER, and are not listed.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.kernels.judging import ProblemRules, RuleBook
from ckh.kernels.pools import Candidates
from ckh.kernels.table import KernelTable
from ckh.ops.aiter_gemm.kernel import AiterKernel, parse_kernel, values_of_k
from ckh.ops.aiter_gemm.problem import CK, CKTILE, FBGEMM

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.aiter_gemm.problem import AiterGemm

BOOK = RuleBook()
_LIST = Path(__file__).with_name("kernels.txt")
# AITER's own tables of August 2026 have the same numbers (tests/ops/aiter_gemm/test_kernel.py).
NUMBERED_BY = "amd-aiter 0.1.7.post2.dev18"
# Family and library -> pool. Missing combinations have no kernels.
_POOLS = {
    ("a8w8", CK): "a8w8",
    ("a8w8_bpreshuffle", CK): "a8w8_bpreshuffle",
    ("a8w8_bpreshuffle", CKTILE): "a8w8_bpreshuffle_cktile",
    ("a8w8_blockscale", CK): "a8w8_blockscale",
    ("a8w8_blockscale", CKTILE): "a8w8_blockscale_cktile",
    ("a8w8_blockscale_bpreshuffle", CK): "a8w8_blockscale_bpreshuffle",
    ("a8w8_blockscale_bpreshuffle", CKTILE): "a8w8_blockscale_cktile",
    ("a4w4_blockscale", CK): "a4w4_blockscale",
    ("a8w8", FBGEMM): "fbgemm_rowwise",
    ("a8w8_bpreshuffle", FBGEMM): "fbgemm_rowwise_preshuffle",
    ("a8w8_batched", FBGEMM): "fbgemm_rowwise_batched",
    ("a8w8_grouped", FBGEMM): "fbgemm_rowwise_grouped",
    ("a16w16_grouped", FBGEMM): "fbgemm_bf16_grouped",
}
# Largest splitK of AITER that a tuning has chosen, by pool.
_MOST_SPLIT = {
    "a8w8": 3,
    "a8w8_bpreshuffle": 1,
    "a8w8_bpreshuffle_cktile": 0,
    "a8w8_blockscale": 3,
    "a8w8_blockscale_cktile": 3,
    "a8w8_blockscale_bpreshuffle": 3,
    "a4w4_blockscale": 1,
    **{name: 0 for (_, library), name in _POOLS.items() if library == FBGEMM},  # names state it
}


@cache
def _listed() -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the names by pool and architecture, which a heading states for the names below it."""
    result: dict[tuple[str, str], list[str]] = {}
    below: list[list[str]] = []
    for line in _lines():
        if line.startswith("#"):
            _, pool, archs = line.split()
            below = [result.setdefault((pool, arch), []) for arch in archs.split(",")]
        else:
            for names in below:
                names.append(line.split()[0])
    return {key: tuple(names) for key, names in result.items()}


def _lines() -> list[str]:
    return _LIST.read_text(encoding="utf-8").splitlines()


@cache
def kernel_numbers() -> dict[str, int]:
    """Return the numbers of CK's kernels by AITER's name."""
    numbered = (line.split() for line in _lines() if not line.startswith("#") and " " in line)
    return {name: int(number) for name, number in numbered}


@cache
def kernel_pool(family: str, library: str, arch: str) -> tuple[AiterKernel, ...]:
    """Return the kernels of a family that AITER builds for an architecture, each with every split of K."""
    name = _POOLS.get((family, library), "")
    return tuple(
        parse_kernel(f"{base}_splitk{split}" if split else base)
        for base in _listed().get((name, arch), ())
        for split in range(_MOST_SPLIT[name] + 1)
    )


@cache
def known_names(family: str, library: str, arch: str) -> frozenset[str]:
    """Return the names of a pool's kernels."""
    return frozenset(kernel.name for kernel in kernel_pool(family, library, arch))


@cache
def resolved(name: str) -> str:
    """Return the listed name for a name of older AITER tables; other names are returned unchanged.

    Older tables write `wpreshuffle` for `bpreshuffle` of block-scaled kernels, and omit the pair that states the
    instructions of a wave.
    """
    newer = name.replace("_wpreshuffle_", "_bpreshuffle_")
    listed = {base for names in _listed().values() for base in names}
    if newer in listed:
        return newer
    longer = [base for base in listed if newer in _shorter(base)]
    return longer[0] if len(longer) == 1 else name


@cache
def _shorter(name: str) -> frozenset[str]:
    parts = name.split("_")
    pairs = [index for index, part in enumerate(parts) if part.replace("x", "").isdigit() and part.count("x") == 1]
    return frozenset("_".join(parts[:index] + parts[index + 1 :]) for index in pairs)


@BOOK.rule
def _whole_steps(problem: AiterGemm, tile_k: int, split_k: int) -> Iterator[str]:
    """AITER builds CK's kernels of pk_fp4 without padding, unlike its others (CheckValidity in CK's …_v3_mx.hpp)."""
    values = values_of_k(tile_k, problem.dtype)
    if values != tile_k and problem.k % (values << split_k):
        parts = f" in each of {1 << split_k} parts" if split_k else ""
        yield f"K = {problem.k} is not a multiple of tile_k {tile_k} = {values} values{parts}"


RULES = (_whole_steps,)


@cache
def _rules(family: str, library: str, arch: str) -> ProblemRules:
    return ProblemRules(RULES, KernelTable.of(AiterKernel, kernel_pool(family, library, arch)), load_arch(arch))


def candidates(problem: AiterGemm, arch: ArchSpec, _model: Path | None = None) -> Candidates[AiterKernel]:
    """Return the kernels to rank. Which others reject a problem, AITER detects only at run time."""
    pool = kernel_pool(problem.family, problem.library, arch.name)
    program = "FBGEMM" if problem.library == FBGEMM else "AITER"
    why = f"{program} has no kernels of {problem.library} for {problem.family} on {arch.name}"
    chosen, reasons = _rules(problem.family, problem.library, arch.name).judge(problem)
    by_problem = dict(reasons.most_common())
    return Candidates(pool, chosen, by_problem if pool else {why: 1}, by_problem=by_problem)


def candidates_key(problem: AiterGemm) -> Hashable:
    """Return the part of a problem that `candidates` reads."""
    return problem.family, problem.library, problem.k if values_of_k(1, problem.dtype) > 1 else 0

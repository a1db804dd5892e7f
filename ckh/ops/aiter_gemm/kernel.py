"""`AiterKernel`: a kernel that AITER's tuners try, parsed from its name; and pools of them.

Pools are the kernels that the tuners try for a family, as listed in kernels.txt, and their splits of K. FBGEMM's are
the kernels that its dispatch has ever named, ASM's and OPUS's those that AITER's tables have ever named, and FlyDSL's
those that won more than once (333 of 640 names, 1,662 of 1,974 rows; state of August 2026). A name is followed by its
number (`kernelId`) in the lists of `NUMBERED_BY`. Other libraries' numbers differ between versions of AITER.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ckh.archs import load_arch
from ckh.errors import DataError
from ckh.kernels.judging import ProblemRules
from ckh.kernels.pools import Candidates
from ckh.kernels.table import KernelTable
from ckh.ops.aiter.applicability import rules_of, whole_tiles
from ckh.ops.aiter_gemm.problem import ASM, CK, CKTILE, FAMILY_FACTS, FBGEMM, LIBRARIES, OP_TYPE, libraries_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ckh.archs import ArchSpec
    from ckh.ops.aiter_gemm.problem import AiterGemm

_WAVE = 64  # lanes
_WITH_REPEATS = 3  # pairs in a name that states the instructions of a wave
_MOST_SPLIT = 15
_SPLIT = re.compile(r"(?P<base>.+)_splitk(?P<split>[1-9][0-9]?)")

_ROWWISE = "a8w8_rowwise"
# Prefix of a name of FBGEMM, the kind of GEMM in its dispatch -> family.
OF_FBGEMM = {
    "fp8_rowwise": "a8w8",
    "fp8_rowwise_preshuffle": "a8w8_bpreshuffle",
    "fp8_rowwise_batched": "a8w8_batched",
    "fp8_rowwise_grouped": "a8w8_grouped",
    "bf16_grouped": "a16w16_grouped",
}
# Prefix of a name -> the family of the kernel.
_FAMILY_OF = {
    _ROWWISE: "a8w8",
    "a8w8_bpreshuffle": "a8w8_bpreshuffle",
    "a8w8_blockscale_1x128x128": "a8w8_blockscale",
    "a8w8_blockscale_bpreshuffle_1x128x128": "a8w8_blockscale_bpreshuffle",
    "a4w4_blockscale": "a4w4_blockscale",
    **OF_FBGEMM,
}
_WITHOUT_LOADS = (_ROWWISE, *OF_FBGEMM)  # names without the elements that a thread loads at a time
_N = "[1-9][0-9]{0,3}"  # a size
_TRIPLE = f"{_N}x{_N}x{_N}"
# Pairs are the matrix instruction's tile, before it the elements loaded per thread, after it instructions per wave.
_CK = re.compile(
    r"(?P<prefix>bf16_grouped|fp8_rowwise(?:_preshuffle|_batched|_grouped)?|a8w8_rowwise|a8w8_bpreshuffle|a8w8_blockscale(?:_bpreshuffle)?_1x128x128|a4w4_blockscale)"
    rf"_(?P<block>{_N})x(?P<tile>{_TRIPLE})_(?P<pairs>{_N}x{_N}(?:_{_N}x{_N}){{1,2}})"
    rf"_(?P<a>{_TRIPLE})_(?P<b>{_TRIPLE})_(?P<c>{_N}x{_TRIPLE})_(?P<store>{_N}(?:x{_N}x{_N})?)_(?P<shuffle>{_N}x{_N})"
    r"_(?P<scheduler>intrawave|interwave)_v(?P<version>[0-9])(?:_(?P<parts>[248]))?"
)
_CKTILE = re.compile(
    r"(?P<prefix>a8w8_bpreshuffle|a8w8_blockscale)_cktile(?:_[0-9x]+x(?P<per_cu>[0-9]{1,4}))?"
    rf"_(?P<tile>{_TRIPLE})_(?P<wave>{_TRIPLE})_(?P<mfma>{_TRIPLE})"
    r"_(?:default|intrawave_[0-9x]+_(?P<last>[0-9]{1,4})(?P<options>(?:_[a-z]+)*))"
)
# Names of other libraries' kernels, with numbers that they state as groups, and what AITER launches of each.
_OTHERS = json.loads(Path(__file__).with_name("others.json").read_bytes())


@dataclass(frozen=True, slots=True, order=True)
class AiterKernel:
    """A kernel and the parameters that its name states; 0 if it does not."""

    base: str  # AITER's name, without split-K, or FBGEMM's, with it
    split_k: int  # splitK of AITER's tables: the exponent of two of the number of parts of K, for ASM the number
    library: str  # one of `LIBRARIES`
    family: str  # of CK's kernels; CK Tile's block-scaled kernels serve both families of that name
    block: int  # threads of a workgroup
    tile_m: int
    tile_n: int
    tile_k: int
    mfma_m: int  # the matrix instruction's tile
    mfma_n: int
    wave_m: int  # waves of a workgroup
    wave_n: int
    a_k1: int = 0  # elements of A that a thread loads at a time
    a_k0: int = 0  # threads along K that load A
    b_k0: int = 0
    c_n: int = 0  # threads along N that store C
    c_store: int = 0  # elements that a thread stores at a time
    shuffle_m: int = 0  # tiles of instructions that are stored together
    shuffle_n: int = 0
    interwave: int = 0  # whether the scheduler is
    version: int = 0  # of the pipeline
    per_cu: int = 0  # workgroups per compute unit that it was compiled for
    transposed: int = 0  # index of the option at the end of the names of CK Tile's block-scaled kernels

    @property
    def name(self) -> str:
        """FBGEMM's name, or AITER's with the split of K, if any."""
        return f"{self.base}_splitk{self.split_k}" if self.split_k and self.library != FBGEMM else self.base

    @property
    def pipeline(self) -> str:
        """The pipeline as a word, such as `intrawave_v3`, `fbgemm_…` for FBGEMM's; the library for others than CK's."""
        if self.library not in (CK, FBGEMM):
            return self.library
        word = f"{'interwave' if self.interwave else 'intrawave'}_v{self.version}"
        return f"{FBGEMM}_{word}" if self.library == FBGEMM else word

    @property
    def listed(self) -> str:
        """The first of the versions of AITER's lists in `LISTS` that has it."""
        return _listed_since(self.base)

    wave_k = 1
    parts = property(lambda self: max(self.split_k, 1) if self.library == ASM else 1 << self.split_k)  # of K
    warp_tile_m = property(attrgetter("mfma_m"))
    warp_tile_n = property(attrgetter("mfma_n"))

    @property
    def warp_tile_k(self) -> int:
        """The instruction's length, for CK's kernels that of the tile."""
        return self.a_k0 if self.library == CKTILE else self.tile_k


NUMBERS: tuple[str, ...] = tuple(field.name for field in fields(AiterKernel) if field.type == "int")


class InstalledKernel(NamedTuple):
    """A kernel in one version of AITER: its name and its number (`kernelId`)."""

    name: str
    number: int


@lru_cache(maxsize=16384)
def parse_kernel(name: str) -> AiterKernel:
    """Parse a kernel's name."""
    split = _SPLIT.fullmatch(name)
    base, parts = (split["base"], int(split["split"])) if split else (name, 0)
    if parts > _MOST_SPLIT:
        raise DataError(f"K is not split into 2^{parts} parts: {name[:160]!r}", code="bad-kernel")
    if (match := _CK.fullmatch(base)) and not (parts if match["prefix"] in OF_FBGEMM else match["parts"]):
        kernel = _of_ck(base, match)
        return replace(kernel, split_k=parts) if parts else kernel
    if match := _CKTILE.fullmatch(base):
        return replace(_of_cktile(base, match), split_k=parts)
    for other in _OTHERS:
        if match := re.fullmatch(other["names"], base):
            stated = {name: int(text) for name, text in match.groupdict().items()}
            return AiterKernel(**{"base": base, "split_k": parts, **other["kernel"], **stated})
    raise DataError(f"not a kernel of AITER's: {name[:160]!r}", code="bad-kernel")


def _of_ck(base: str, match: re.Match[str]) -> AiterKernel:
    block, (tile_m, tile_n, tile_k) = int(match["block"]), _numbers(match["tile"])
    pairs = [_numbers(pair) for pair in match["pairs"].split("_")]
    loaded, mfma = ((0, 0), pairs[0]) if match["prefix"] in _WITHOUT_LOADS else (pairs[0], pairs[1])
    shuffle, threads, c_store = _numbers(match["shuffle"]), _numbers(match["c"]), _numbers(match["store"])[0]
    if len(pairs) == _WITH_REPEATS or match["prefix"] in _WITHOUT_LOADS:
        wave_m = tile_m // (mfma[0] * pairs[-1][0])
    else:
        # Waves store as many rows at a time as their threads cover, or else as many columns.
        stored_n = threads[3] * c_store // (shuffle[1] * mfma[1])
        wave_m = threads[1] // (shuffle[0] * mfma[0]) or block // _WAVE // max(1, stored_n)
    return AiterKernel(
        base=base,
        split_k=int(match["parts"] or 1).bit_length() - 1,
        library=FBGEMM if match["prefix"] in OF_FBGEMM else CK,
        family=_FAMILY_OF[match["prefix"]],
        block=block,
        tile_m=tile_m,
        tile_n=tile_n,
        tile_k=tile_k,
        mfma_m=mfma[0],
        mfma_n=mfma[1],
        wave_m=max(1, wave_m),
        wave_n=max(1, block // _WAVE // max(1, wave_m)),
        a_k1=loaded[0],
        a_k0=_numbers(match["a"])[0],
        b_k0=_numbers(match["b"])[0],
        c_n=threads[3],
        c_store=c_store,
        shuffle_m=shuffle[0],
        shuffle_n=shuffle[1],
        interwave=int(match["scheduler"] == "interwave"),
        version=int(match["version"]),
    )


def _of_cktile(base: str, match: re.Match[str]) -> AiterKernel:
    tile, wave, mfma = _numbers(match["tile"]), _numbers(match["wave"]), _numbers(match["mfma"])
    return AiterKernel(
        base=base,
        split_k=0,
        library=CKTILE,
        family=match["prefix"],
        block=prod(wave) * _WAVE,
        tile_m=tile[0],
        tile_n=tile[1],
        tile_k=tile[2],
        mfma_m=mfma[0],
        mfma_n=mfma[1],
        wave_m=wave[0],
        wave_n=wave[1],
        a_k0=mfma[2],
        per_cu=int(match["per_cu"] or match["last"] or 0),
        transposed=len(match["options"] or ""),
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


_LIST = Path(__file__).with_name("kernels.txt")
# Versions of AITER's lists by date, oldest first: patterns of the names of the kernels that each has first.
LISTS: dict[str, dict[str, Any]] = json.loads(_LIST.with_name("lists.json").read_bytes())
# AITER's own tables of August 2026 have the same numbers (tests/ops/aiter_gemm/test_kernel.py).
NUMBERED_BY = "amd-aiter 0.1.7.post2.dev18"


@cache
def _listed() -> tuple[dict[tuple[str, str], list[str]], dict[str, int]]:
    """Return the names by pool and architecture, which a heading states for the names below it, and the numbers."""
    pools: dict[tuple[str, str], list[str]] = {}
    numbers: dict[str, int] = {}
    below: list[list[str]] = []
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            _, pool, archs = line.split()
            below = [pools.setdefault((pool, arch), []) for arch in archs.split(",")]
            continue
        name, *number = line.split()
        numbers |= dict.fromkeys([name], int(number[0])) if number else {}
        for names in below:
            names.append(name)
    return pools, numbers


def kernel_numbers() -> dict[str, int]:
    """Return the numbers of CK's kernels by AITER's name."""
    return _listed()[1]


@cache
def kernel_pool(family: str, library: str, arch: str) -> tuple[AiterKernel, ...]:
    """Return a family's kernels for an architecture, each with every split of K; FBGEMM's are apart from AITER's."""
    if library not in LIBRARIES:
        own = tuple(kernel for name in libraries_of(library) for kernel in kernel_pool(family, name, arch))
        return own or kernel_pool(family, FBGEMM, arch)
    name, splits = FAMILY_FACTS[family]["pools"].get(library, ("", ()))
    return tuple(
        parse_kernel(f"{base}_splitk{split}" if split else base)
        for base in _listed()[0].get((name, arch), ())
        for split in splits
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
    listed = _without_pairs()
    if newer in listed:
        return newer
    longer = [base for base, shorter in listed.items() if newer in shorter]
    return longer[0] if len(longer) == 1 else name


@cache
def _without_pairs() -> dict[str, frozenset[str]]:
    """Return for each listed name the names that omit one of its pairs."""
    shortened: dict[str, frozenset[str]] = {}
    for name in (base for names in _listed()[0].values() for base in names):
        parts = name.split("_")
        pairs = [index for index, part in enumerate(parts) if part.replace("x", "").isdigit() and part.count("x") == 1]
        shortened[name] = frozenset("_".join(parts[:index] + parts[index + 1 :]) for index in pairs)
    return shortened


@cache
def _listed_since(base: str) -> str:
    return max(since for since, version in LISTS.items() if re.fullmatch("|".join(version["kernels"]), base))


RULES = rules_of(OP_TYPE)
_JUDGED = {dtype for row in whole_tiles() if row.op == OP_TYPE for dtype in row.dtypes}  # element types with rules


@cache
def _rules(family: str, library: str, arch: str) -> ProblemRules:
    return ProblemRules(RULES, KernelTable.of(AiterKernel, kernel_pool(family, library, arch)), load_arch(arch))


def candidates(problem: AiterGemm, arch: ArchSpec, _model: Path | None = None) -> Candidates[AiterKernel]:
    """Return the kernels to rank. Which others reject a problem, AITER detects only at run time."""
    pool = kernel_pool(problem.family, problem.library, arch.name)
    why = f"there are no kernels of {problem.family} ({problem.library} library) on {arch.name}"
    chosen, reasons = _rules(problem.family, problem.library, arch.name).judge(problem)
    by_problem = dict(reasons.most_common())
    return Candidates(pool, chosen, by_problem if pool else {why: 1}, by_problem=by_problem)


def candidates_key(problem: AiterGemm) -> Hashable:
    """Return the part of a problem that `candidates` reads."""
    return problem.family, problem.library, (problem.n, problem.k) if problem.dtype in _JUDGED else 0

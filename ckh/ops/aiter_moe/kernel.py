"""`MoeChoice`: a kernel for one of the two products, or a pair of kernels whose tiles have the same number of rows.

Pools are the kernels that AITER's tuners try for a kind of mixtures, as listed in kernels.txt, and their pairs. Kinds
below a heading with `untuned` are those of AITER's generators (gemm_moe_ck2stages_common.py, and
moe_cktile2stages_common.py of May 2026), without public measurements known to ckh.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import DataError
from ckh.kernels.judging import ProblemRules
from ckh.kernels.pools import Candidates
from ckh.kernels.table import KernelTable
from ckh.ops.aiter.applicability import rules_of
from ckh.ops.aiter_moe.problem import BOTH, GATES, KINDS, OP_TYPE, RESULT_BYTES, STAGE1, STAGE2
from ckh.ops.base import EstimatedProduct, TiledSizes
from ckh.problems import DTYPE_BYTES

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from ckh.archs import ArchSpec
    from ckh.ops.aiter_moe.problem import AiterMoe

CK_TILE = "moe_cktile2stages_"  # prefix of the names of CK Tile's kernels
_JOINED = "+"
_PAIR = 2  # kernels of a joint choice
_DEPTH_BYTES = 32  # of K that a matrix instruction of 16 x 16 multiplies at least
_COLUMNS, _ADJACENT = 16, ("per_1x32", 64)
_N = "[1-9][0-9]{0,3}"  # a size
_CK = re.compile(
    rf"moe_ck2stages_gemm(?P<gemm>[12])_(?P<block>{_N})x(?P<tile>{_N}x{_N}x{_N})_(?P<wave>{_N}x{_N})"
    r"_(?P<kind>[A-Za-z0-9]+)_v(?P<version>[0-9])_Nswizzle[0-9]_(?:Quant[0-9]|no)_MulRoutedWeight[0-9](?:_\w+)?"
)
_CKTILE = re.compile(
    rf"{CK_TILE}gemm(?P<gemm>[12])_(?P<block>{_N})x(?P<tile>{_N}x{_N}x{_N})_(?P<wave>{_N}x{_N})"
    rf"_{_N}x{_N}x(?P<mfma_k>{_N})_(?P<per_cu>[0-9])perCU_\w+"
)


@dataclass(frozen=True, slots=True, order=True)
class MoeChoice:
    """Kernels for one or both products, and the parameters that their names state; 0 if absent."""

    name: str  # AITER's name of a kernel, or both names joined by a plus
    stage: str  # of its products
    block_m: int  # rows of a tile, shared by both products, as tokens are sorted for it
    block1: int  # threads of a workgroup of the first product
    tile_n1: int
    tile_k1: int
    wave_m1: int
    wave_n1: int
    version1: int  # of CK's pipelines
    mfma_k1: int  # depth of the matrix instruction of CK Tile's kernels
    per_cu1: int  # workgroups per compute unit that CK Tile's kernels were compiled for
    block2: int  # likewise of the second product
    tile_n2: int
    tile_k2: int
    wave_m2: int
    wave_n2: int
    version2: int
    mfma_k2: int
    per_cu2: int


NUMBERS: tuple[str, ...] = tuple(field.name for field in fields(MoeChoice) if field.type == "int")
_NOTHING = (0,) * ((len(NUMBERS) - 1) // _PAIR)


@lru_cache(maxsize=65536)
def parse_choice(name: str) -> MoeChoice:
    """Parse the name of a choice."""
    parts = [_part(part) for part in name.split(_JOINED)]
    if len(parts) == 1:
        ((gemm, block_m, numbers),) = parts
        both = (*numbers, *_NOTHING) if gemm == 1 else (*_NOTHING, *numbers)
        return MoeChoice(name, STAGE1 if gemm == 1 else STAGE2, block_m, *both)
    if len(parts) != _PAIR or [gemm for gemm, _, _ in parts] != [1, 2]:
        raise DataError(f"not a kernel for each of two products: {name[:300]!r}", code="bad-kernel")
    (_, block_m, first), (_, block_m2, second) = parts
    if block_m != block_m2:
        raise DataError(f"kernels with tiles of {block_m} and {block_m2} rows are incompatible", code="bad-kernel")
    return MoeChoice(name, BOTH, block_m, *first, *second)


def _part(name: str) -> tuple[int, int, tuple[int, ...]]:
    """Return which product a kernel is for, the rows of its tile, and its other numbers."""
    match = _CK.fullmatch(name) or _CKTILE.fullmatch(name)
    if match is None:
        raise DataError(f"not a kernel of AITER's: {name[:160]!r}", code="bad-kernel")
    known = match.groupdict()
    tile_m, *numbers = (int(size) for part in ("tile", "wave") for size in match[part].split("x"))
    numbers += [int(known.get(part) or 0) for part in ("version", "mfma_k", "per_cu")]
    return int(match["gemm"]), tile_m, (int(match["block"]), *numbers)


def joint(first: str, second: str) -> str:
    """Return the name of a choice for both products."""
    return f"{first}{_JOINED}{second}"


def parts(name: str) -> tuple[MoeChoice, MoeChoice]:
    """Return the two kernels of a joint choice."""
    first, _, second = name.partition(_JOINED)
    return parse_choice(first), parse_choice(second)


@dataclass(frozen=True, slots=True)
class ProductKernel:
    """The kernel of one product of a choice, as the analytic estimate reads kernels."""

    tile_m: int
    tile_n: int
    tile_k: int
    wave_m: int
    wave_n: int
    pipeline: str
    per_cu: int
    warp_tile_k: int
    added: float  # bytes of atomic operations for an element of the second product, 0 of the first
    layout: str = "rcr"
    wave_k: int = 1
    warp_tile_m: int = 16
    warp_tile_n: int = 16


def products(problem: AiterMoe) -> list[EstimatedProduct | None]:
    """Both products, None for one that is not of the problem, with the rows of each expert in tiles of their own."""
    rows, active = problem.tokens * problem.topk, min(problem.experts, problem.tokens * problem.topk)
    sizes = {
        STAGE1: TiledSizes(-(-rows // active), GATES * problem.inter_dim, problem.model_dim, active),
        STAGE2: TiledSizes(-(-rows // active), problem.model_dim, problem.inter_dim, active),
    }
    return [
        EstimatedProduct(
            problem.dtype, replace(problem, stage=stage).bytes, size, partial(_kernels, stage, problem), problem.num_cus
        )
        if problem.stage in (stage, BOTH)
        else None
        for stage, size in sizes.items()
    ]


def _kernels(stage: str, problem: AiterMoe, choices: Sequence[MoeChoice]) -> list[ProductKernel]:
    """The kernels of a stage, whose matrix instructions multiply 32 bytes of K unless their names say it."""
    number, depth = 1 if stage == STAGE1 else 2, int(_DEPTH_BYTES / DTYPE_BYTES[problem.dtype])
    names = ("tile_n", "tile_k", "wave_m", "wave_n", "per_cu")
    kernels = []
    for choice in choices:
        version, mfma_k = (getattr(choice, f"{name}{number}") for name in ("version", "mfma_k"))
        stated: dict[str, Any] = {name: getattr(choice, f"{name}{number}") for name in names}
        stated |= {"pipeline": "cktile" if mfma_k else f"moe_v{version}", "warp_tile_k": mfma_k or depth}
        added = 0.0 if stage == STAGE1 else _added_bytes(problem, choice)
        kernels.append(ProductKernel(choice.block_m, **stated, added=added))
    return kernels


def _added_bytes(problem: AiterMoe, choice: MoeChoice) -> float:
    """Bytes of atomic operations for an element of the second product: a request of CK's has 64, not all of them used.

    It has the two elements of each lane, whose distance is that of the parts into which waves divide the tile; it has
    adjacent elements in kernels with scales of blocks, and in fp4's of one wave (`benchmarks/estimate.md`).
    """
    is_adjacent = choice.mfma_k2 or problem.quant == "per_1x128" or (problem.quant, choice.block2) == _ADJACENT
    return RESULT_BYTES * (1.0 if is_adjacent else max(1.0, choice.tile_n2 / (_COLUMNS * choice.wave_n2)))


_LIST = Path(__file__).with_name("kernels.txt")
_UNTUNED = "untuned"


RULES = rules_of(OP_TYPE)


@cache
def _listed() -> tuple[dict[tuple[str, ...], list[str]], frozenset[tuple[str, ...]]]:
    """Return the names by architecture and `KINDS` of one stage, which a heading states, and the measured ones."""
    listed: dict[tuple[str, ...], list[str]] = {}
    tuned = set()
    below: list[str] = []
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            kind, more = tuple(line.split()[1 : 2 + len(KINDS)]), line.split()[2 + len(KINDS) :]
            below = listed.setdefault(kind, [])
            tuned |= set() if _UNTUNED in more else {kind}
        else:
            below.append(line)
    return listed, frozenset(tuned)


# Names of bf16 kernels stated no types before 2026; the list has some as they were measured then.
_OLD, _NEW, _TYPES = "_Nswizzle0_no_", "_Nswizzle0_Quant0_", "_B16_B16_B16"


def newer_name(name: str) -> str:
    """Return the name of a kernel, or of each of two, in AITER's newest lists."""
    parts = name.split("+")
    return "+".join(part.replace(_OLD, _NEW) + _TYPES if _OLD in part else part for part in parts)


def other_names(choice: MoeChoice) -> tuple[str, ...]:
    """Return the name of a choice in AITER's newest lists, if it has changed."""
    newer = newer_name(choice.name)
    return () if newer == choice.name else (newer,)


def known_name(name: str, arch: str, problem: AiterMoe) -> str:
    """Return ckh's name of a kernel, given a possibly newer name; unknown names are returned unchanged."""
    kernels = {newer_name(kernel.name): kernel.name for kernel in moe_pool(arch, *kind_of(problem))}
    return kernels.get(name, name)


@cache
def moe_pool(arch: str, stage: str, *kinds: str) -> tuple[MoeChoice, ...]:
    """Return the choices for a stage on an architecture, by the values of the other `KINDS`; empty without kernels."""
    if stage != BOTH:
        return tuple(map(parse_choice, _listed()[0].get((arch, stage, *kinds), ())))
    firsts, seconds = (moe_pool(arch, single, *kinds) for single in (STAGE1, STAGE2))
    pairs = ((first, second) for first in firsts for second in seconds if first.block_m == second.block_m)
    return tuple(parse_choice(joint(first.name, second.name)) for first, second in pairs)


def kind_of(problem: AiterMoe) -> tuple[str, ...]:
    """Return the values of `KINDS` of a problem."""
    return tuple(str(getattr(problem, name)) for name in KINDS)


def candidates(problem: AiterMoe, arch: ArchSpec, _model: Path | None = None) -> Candidates[MoeChoice]:
    """Return the kernels, or pairs of kernels, that support a problem."""
    kind = kind_of(problem)
    pool, words = moe_pool(arch.name, *kind), " ".join(kind)
    refused = {} if pool else {f"no known kernel of AITER's for {words} on {arch.name}": 1}
    chosen, reasons = _rules(arch.name, *kind).judge(problem)
    stages = (STAGE1, STAGE2) if problem.stage == BOTH else (problem.stage,)
    is_tuned = all((arch.name, stage, *kind[1:]) in _listed()[1] for stage in stages)
    by_problem = dict(reasons.most_common())
    unmeasured = "" if is_tuned or not pool else words
    return Candidates(pool, chosen, refused | by_problem, unmeasured, by_problem=by_problem)


@cache
def _rules(arch: str, *kind: str) -> ProblemRules:
    return ProblemRules(RULES, KernelTable.of(MoeChoice, moe_pool(arch, *kind)), load_arch(arch))


def candidates_key(problem: AiterMoe) -> Hashable:
    """Return the part of a problem that `candidates` reads."""
    return kind_of(problem), problem.model_dim, problem.inter_dim

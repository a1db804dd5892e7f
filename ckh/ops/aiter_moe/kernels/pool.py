"""Pools: the kernels that AITER's tuners try for a kind of mixtures, as listed in kernels.txt, and their pairs.

Kinds below a heading with `untuned` are those of AITER's generators (gemm_moe_ck2stages_common.py, and
moe_cktile2stages_common.py of May 2026), without public measurements known to ckh.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.kernels.judging import ProblemRules, RuleBook
from ckh.kernels.pools import Candidates
from ckh.kernels.table import KernelTable
from ckh.ops.aiter_gemm.kernel import values_of_k
from ckh.ops.aiter_moe.kernel import MoeChoice, joint, parse_choice
from ckh.ops.aiter_moe.problem import BOTH, KINDS, STAGE1, STAGE2

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from ckh.archs import ArchSpec
    from ckh.ops.aiter_moe.problem import AiterMoe

_LIST = Path(__file__).with_name("kernels.txt")
_UNTUNED = "untuned"
BOOK = RuleBook()


@BOOK.rule
def _whole_steps(problem: AiterMoe, tile_k1: int, tile_k2: int, version1: int, version2: int) -> Iterator[str]:
    """CK's kernels failed on exactly the problems whose K is not a multiple of their tile's.

    CK Tile's kernels, which have no version, mistake the scales of pk_fp4 there (ROCm/aiter issue 5233).
    """
    products = (("first", "model_dim", tile_k1, version1), ("second", "inter_dim", tile_k2, version2))
    for product, name, tile_k, version in products:
        values = values_of_k(tile_k, problem.dtype) if version else tile_k
        if values and getattr(problem, name) % values:
            pairs = f" = {values} values" if values != tile_k else ""
            size = getattr(problem, name)
            yield f"{name} = {size} is not a multiple of tile_k {tile_k}{pairs} of the {product} product"


@BOOK.rule
def _whole_columns(problem: AiterMoe, tile_n1: int, tile_n2: int, version1: int, version2: int) -> Iterator[str]:
    """CK refuses an N that is not a multiple of the tile's, too (IsSupportedArgument in device_moe_*gemm*.hpp)."""
    if version1 and problem.inter_dim % tile_n1:
        yield f"inter_dim = {problem.inter_dim} is not a multiple of tile_n {tile_n1} of the first product"
    if version2 and problem.model_dim % tile_n2:
        yield f"model_dim = {problem.model_dim} is not a multiple of tile_n {tile_n2} of the second product"


RULES = (_whole_steps, _whole_columns)


@cache
def _listed() -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the names by architecture and `KINDS` of one stage, which a heading states for the names below it."""
    result: dict[tuple[str, ...], list[str]] = {}
    below: list[str] = []
    for line in _LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            below = result.setdefault(tuple(line.split()[1 : 2 + len(KINDS)]), [])
        else:
            below.append(line)
    return {key: tuple(names) for key, names in result.items()}


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
def _tuned() -> frozenset[tuple[str, ...]]:
    """Return architecture and `KINDS` of measured kernels."""
    headings = [line.split()[1:] for line in _LIST.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return frozenset(tuple(words) for words in headings if _UNTUNED not in words)


@cache
def moe_pool(arch: str, stage: str, *others: str) -> tuple[MoeChoice, ...]:
    """Return the choices for a stage on an architecture, by the values of the other `KINDS`; empty without kernels."""
    if stage != BOTH:
        return tuple(map(parse_choice, _listed().get((arch, stage, *others), ())))
    firsts, seconds = (moe_pool(arch, item, *others) for item in (STAGE1, STAGE2))
    pairs = ((first, two) for first in firsts for two in seconds if first.block_m == two.block_m)
    return tuple(parse_choice(joint(item.name, two.name)) for item, two in pairs)


def kind_of(problem: AiterMoe) -> tuple[str, ...]:
    """Return the values of `KINDS` of a problem."""
    return tuple(str(getattr(problem, name)) for name in KINDS)


def candidates(problem: AiterMoe, arch: ArchSpec, _model: Path | None = None) -> Candidates[MoeChoice]:
    """Return the kernels, or pairs of kernels, that support a problem."""
    pool = moe_pool(arch.name, *kind_of(problem))
    kind = " ".join(kind_of(problem))
    refused = {} if pool else {f"no known kernel of AITER's for {kind} on {arch.name}": 1}
    chosen, reasons = _rules(arch.name, *kind_of(problem)).judge(problem)
    others = kind_of(problem)[1:]
    is_tuned = all((arch.name, stage, *others) in _tuned() for stage in _stages(problem.stage))
    by_problem = dict(reasons.most_common())
    unmeasured = "" if is_tuned or not pool else kind
    return Candidates(pool, chosen, refused | by_problem, unmeasured, by_problem=by_problem)


def _stages(stage: str) -> tuple[str, ...]:
    return (STAGE1, STAGE2) if stage == BOTH else (stage,)


@cache
def _rules(arch: str, *kind: str) -> ProblemRules:
    return ProblemRules(RULES, KernelTable.of(MoeChoice, moe_pool(arch, *kind)), load_arch(arch))


def candidates_key(problem: AiterMoe) -> Hashable:
    """Return the part of a problem that `candidates` reads."""
    return kind_of(problem), problem.model_dim, problem.inter_dim

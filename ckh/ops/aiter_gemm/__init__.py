"""`aiter_gemm`: Composable Kernel's fastest kernel for a quantised matrix product in AITER."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.errors import UsageError
from ckh.ops.aiter.devices import completed
from ckh.requested import Requested, SizeOption

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ckh.ops.aiter_gemm.problem import AiterGemm

FAMILY, LIBRARY = "a8w8", "any"  # defaults of problems
DTYPE = "the family's"  # where none is stated
_BEGIN = {"fp8_": "fbgemm", "bf16_": "fbgemm", "_ZN5aiter": "asm", "flydsl_": "flydsl", "opus_": "opus"}
_OPTIONS = (
    SizeOption("m", "Tokens (rows of the result)"),
    SizeOption("n", "Rows of B (columns of the result)"),
    SizeOption("k", "Reduction dimension"),
    SizeOption("family", "Family, e.g. a8w8_bpreshuffle, a8w8_blockscale, a4w4_blockscale", FAMILY, str),
    SizeOption(
        "library", "Only kernels of ck, cktile, asm, flydsl, opus, fbgemm, or several: ck,cktile", "AITER's", str
    ),
    SizeOption("groups", "Products of a batched or grouped family of FBGEMM", "none"),
    SizeOption("num_cus", "Compute units of the GPU", "304 on gfx942, 256 on gfx950"),
)


def _problem(given: Mapping[str, Any], _variant: str, dtype: str) -> AiterGemm:
    from ckh.ops.aiter_gemm.problem import FAMILIES, GROUPED, AiterGemm, family_of

    if missing := [name for name in ("m", "n", "k") if name not in given]:
        raise UsageError(f"a GEMM of AITER needs --m, --n and --k: --{missing[0]} is missing", code="missing-option")
    family = given.get("family", family_of(dtype, FAMILY))
    if "family" not in given and (family in GROUPED or dtype not in (DTYPE, *FAMILIES[family])):
        hint = f"name --op gemm_universal --dtype {dtype}, or a family of it with --family"
        raise UsageError(f"aiter_gemm is of quantised GEMMs, this is {dtype}", hint, code="unsupported")
    own = FAMILIES.get(family, (dtype,))
    return AiterGemm(**{**given, "family": family}, dtype=own[0] if dtype == DTYPE else dtype)


def library_of(kernel: str) -> str:
    """Return the library of a kernel's name, as of `AiterKernel.library`."""
    others = (name for begins, name in _BEGIN.items() if kernel.startswith(begins))
    return "cktile" if "_cktile_" in kernel else next(others, "ck")


def _notes(answer: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the library of the first row, with the first row of each."""
    rows = [library_of(row.kernel) for row in answer.kernels]
    first = {library: rows.index(library) + 1 for library in dict.fromkeys(rows)}
    said = (library if row == 1 else f"{library} from row {row}" for library, row in first.items())
    yield "library", "; ".join(said), {"rows": first}, "problem", "library", ""


_KERNEL = (
    r"[a-z0-9_]+?_(?P<block>\d+)x(?P<tile>\d+x\d+x\d+)_(?P<instruction>\d+x\d+)_(?P<others>\w+?)"
    r"_(?P<pipeline>int\w+wave_v\d(?:_splitk\d+)?)"
)
REQUESTED = Requested(
    _OPTIONS,
    _problem,
    pool=lambda given: f"{given.get('family', FAMILY)} {given.get('library', LIBRARY)}",
    default_dtype=DTYPE,
    completed=completed,
    kernel=_KERNEL,
    notes=_notes,
)

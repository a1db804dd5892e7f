"""Exported C, and tuned tables for AITER, of mixtures of experts without tuning.

Predicted rows are separate from measured ones. An installed AITER's own generator and lookup check the tables. The
kernels that an installed AITER, or its source, builds are those that its own generator emits.
"""

from __future__ import annotations

import json
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import DataError, UsageError
from ckh.export.consumers import ChoiceTable, Consumers
from ckh.export.groups import DTYPE, Code, Exported, ProblemKind, ruled_group
from ckh.files.child import code_command
from ckh.ops.aiter.checking import TableChecks, check_tables
from ckh.ops.aiter.installed import (
    TAG,
    TunedTable,
    best_kernel,
    bound_us,
    choice_row,
    chosen,
    found_rows,
    last_line,
    run_aiter,
    source_file,
    source_text,
    written_choices,
)
from ckh.ops.aiter_moe.kernel import CK_TILE, RULES, joint, known_name, moe_pool, newer_name, parts
from ckh.ops.aiter_moe.operation import KEY, QUANT_NAMES, TIERS, is_of_mixtures, key_cells, looked_up
from ckh.ops.aiter_moe.problem import BOTH, KINDS, SIZES, AiterMoe, parse_aiter_moe
from ckh.ops.aiter_moe.tuned import COLUMNS, TunedMixture, dataset_lines, mixture_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from ckh.export.consumers import Choices, ExportedChoice, WrittenChoices
    from ckh.export.groups import Group
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.aiter.installed import OwnTable

TABLE = TunedTable("tuned_fmoe", "AITER_CONFIG_FMOE", KEY, COLUMNS, "fused_moe.py", (TAG,))
_GENERATOR = "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py"
_TIMEOUT_S = 120
_WRONG_USAGE = 2  # exit code of argparse, also if a version does not have the activation
_TYPES = {"per_token": "f8", "per_1x128": "f8", "per_1x32": "fp4x2", "none": "b16"}
# Runs the generator in a temporary folder, and prints the names in its table. Its queries of a GPU get fixed answers.
_PRINT = """
import json, os, re, runpy, sys, tempfile, types
from pathlib import Path
arch, path, *args = sys.argv[1:]
chip = types.ModuleType("chip_info")
chip.get_gfx, chip.get_gfx_list = (lambda: arch), (lambda: [arch])
for name in ("chip_info", "aiter", "aiter.jit", "aiter.jit.utils", "aiter.jit.utils.chip_info"):
    sys.modules[name] = chip
sys.path.insert(0, os.path.dirname(path))
with tempfile.TemporaryDirectory() as work:
    sys.argv = [path, "-w", work, *args]
    runpy.run_path(path, run_name="__main__")
    texts = [file.read_text() for file in Path(work).glob("*lookup*.h")]
print(json.dumps(sorted({name for text in texts for name in re.findall(r'"(moe_ck2stages_\\w+)"', text)})))
"""


@cache
def built_kernels(root: Path, arch: str, quant: str, activation: str) -> frozenset[str]:
    """Return the names of the kernels that AITER builds for a kind of mixtures; none if it lacks the activation."""
    path = source_file(root, _GENERATOR)
    if path is None:
        raise DataError(
            f"{root} has no generator of mixture-of-experts kernels: no {_GENERATOR} in or beside it", code="no-aiter"
        )
    types = _TYPES[quant]
    kind = ("-a", types, "-b", types, "-c", "b16", "-q", QUANT_NAMES[quant].lower(), "-act", activation, "-m", "2")
    done = run_aiter(code_command(_PRINT, arch, str(path), *kind, "-p"), most_s=_TIMEOUT_S)
    if done.returncode not in (0, _WRONG_USAGE):
        raise DataError(f"cannot run AITER's generator {path}: {last_line(done.stderr).strip()}", code="aiter-failed")
    return frozenset(json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else ())


KIND = ProblemKind(
    "aiter_moe",
    3,
    "the two products of a mixture of experts; `num_cus` compute units must be stated.",
    (
        Code("stage", "stage", 0, KINDS["stage"], "CKH_MOE_", "CKH_MOE_STAGES"),
        DTYPE,
        Code("quant", "quant", 2, KINDS["quant"], "CKH_MOE_", "CKH_MOE_QUANTS", added=1),
        Code("activation", "activation", 3, KINDS["activation"], "CKH_MOE_", "CKH_MOE_ACTIVATIONS"),
    ),
    SIZES,
    AiterMoe,
    {"tokens": 64, "model_dim": 7168, "inter_dim": 256, "experts": 256, "topk": 8, "num_cus": 256},
)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for kind in product(*KINDS.values()):
        example = AiterMoe(1, 1, 1, 1, 1, **dict(zip(KINDS, kind, strict=True)), num_cus=1)
        yield ruled_group(KIND, example, moe_pool(arch.name, *kind), RULES, arch)


EXPORTED = Exported(KIND, _groups)


def _omitted(
    root: Path, _table: TunedTable, device: tuple[str, int], _file: Path
) -> Callable[[Mapping[str, Any]], str]:
    def wrong(choice: Mapping[str, Any]) -> str:
        names = [newer_name(part.name) for part in parts(choice["kernel"])]
        if any(name.startswith(CK_TILE) for name in names):
            return ""
        problem = parse_aiter_moe(choice["problem"])
        built = built_kernels(root, device[0], problem.quant, problem.activation)
        missing = [name for name in names if name not in built]
        return f"AITER's generator does not emit {missing[0]}" if missing else ""

    return wrong


def _is_same(kernel: str, row: Mapping[str, str]) -> bool:
    return [newer_name(part.name) for part in parts(kernel)] == [row["kernelName1"], row["kernelName2"]]


# In AITER's lookup since 2026: rows of other activations, except for CK's kernels, and of smaller tiers of tokens.
_ANY_ACTIVATION, _SMALLER_TIERS = "_ACT_TYPE_DISABLED_KEY", "_PADDED_M_TIERS[:"
_OF_CK = "moe_ck2stages"
_NOTES = """\
- AITER looks for tokens rounded up to a power of two, or down to 32768 or 131072: rows are of these.
- Rows are of gated experts (`use_g1u1` 1) whose weights are applied after the second product (`doweight_stage1` 0).
"""


def write_tables(choices: Choices) -> WrittenChoices:
    """Write the tables for the mixtures of answers. If AITER pads several to one row, the one with most tokens is used.

    Mixtures without a kernel, and those of a single product, are listed as missing.
    """
    lines = [] if choices.measured is None else dataset_lines(choices.measured)
    measured = {line.key: line for line in lines if not line.is_predicted}
    written: dict[tuple[Any, ...], TunedMixture] = {}
    root = choices.installed
    own = None if root is None else TABLE.of_root(root)

    def choose(answer: Ranking) -> ExportedChoice:
        problem: Any = answer.problem
        if problem.stage != BOTH:
            raise UsageError(
                f"AITER's rows have both products: {problem.canonical()}",
                "omit --stage",
                code="inapplicable-option",
            )
        wanted = key_cells(answer.model.spec.arch, looked_up(problem))
        row = measured.get(tuple(wanted.values()))
        kept = None if own is None or choices.replaces else _kept(own, root, wanted)
        if kept is not None and (row is None or row.time_us >= float(kept["us"])):
            kernel = joint(kept.get("kernelName1", ""), kept.get("kernelName2", ""))
            return choice_row(answer, kept, kernel, _padded(problem, int(kept["token"])))
        line = _predicted(answer, root) if row is None else _checked(row, root)
        line = written.setdefault(line.key, line)
        basis = "bounded by the slowest of all winners" if line.is_predicted else "measured"
        return choice_row(answer, line, line.kernel, basis + _padded(problem, line.problem.tokens))

    by_tokens = sorted(choices.answers, key=lambda answer: -answer.problem.tokens)  # type: ignore[attr-defined]
    rows, missing = chosen(by_tokens, choose)
    ordered = (rows[answer.problem] for answer in choices.answers if answer.problem in rows)
    lines_by_key = sorted(written.values(), key=lambda line: line.key)
    times = "; `us1` and `us2` where each product was measured"
    return written_choices(lines_by_key, lambda _: TABLE, mixture_table, ordered, missing, root, _NOTES, times)


def _kept(own: OwnTable, root: Path | None, wanted: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the row that AITER finds: for the tokens, in newer versions else another activation or a smaller tier."""
    source, tokens = source_text(root, TABLE.source), wanted["token"]
    smaller = [tier for tier in reversed(TIERS) if tier < tokens] if _SMALLER_TIERS in source else []
    for looked_for in (tokens, *smaller):
        cells = {**wanted, "token": looked_for, TAG: ""}
        row = own.find(cells)
        if row is None and _ANY_ACTIVATION in source:
            rows = (line for line in own.but_for("act_type", cells) if _OF_CK not in line.get("kernelName1", ""))
            row = next(rows, None)
        if row is not None:
            return row
    return None


def _predicted(answer: Ranking, root: Path | None) -> TunedMixture:
    """Return the row of the best-ranked answer that AITER has, for the tokens that it looks up."""
    problem: Any = answer.problem
    arch = answer.model.spec.arch
    kernel = best_kernel(answer, root, lambda name: root is None or _is_built(name, problem, arch, root))
    problem = looked_up(problem)
    return TunedMixture(arch, problem, kernel, bound_us(problem, arch), is_predicted=True)


def _is_built(kernel: str, problem: AiterMoe, arch: str, root: Path) -> bool:
    """True if the AITER in a folder has both kernels of a choice."""
    names = [newer_name(part.name) for part in parts(kernel)]
    if any(name.startswith(CK_TILE) for name in names):
        raise UsageError(
            f"{root} has no list of CK Tile's mixture-of-experts kernels", "omit --installed", code="unsupported"
        )
    return built_kernels(root, arch, problem.quant, problem.activation).issuperset(names)


def _checked(line: TunedMixture, root: Path | None) -> TunedMixture:
    if root is not None and not _is_built(line.kernel, line.problem, line.arch, root):
        raise DataError(
            f"AITER in {root} has no kernels {line.kernel}, which {line.problem.canonical()} was measured with",
            code="unknown-kernel",
        )
    return line


def _padded(problem: AiterMoe, tokens: int) -> str:
    return "" if tokens == problem.tokens else f" for {tokens} tokens"


def picked_mixtures(folder: Path, arch: str, problems: Sequence[AiterMoe]) -> list[str]:
    """Return the kernels of both products that AITER finds in an export, by its rules; empty where it finds no row."""
    keys = [[key_cells(arch, looked_up(problem))] for problem in problems]
    rows = found_rows(folder, TABLE.name, KEY, keys)
    return [
        "" if row is None else known_name(joint(row["kernelName1"], row["kernelName2"]), arch, problem)
        for problem, row in zip(problems, rows, strict=True)
    ]


_CHECKS = TableChecks(parse_aiter_moe, lambda _: TABLE, key_cells, _omitted, _is_same)
CONSUMERS = Consumers(
    tables=(
        ChoiceTable(
            "aiter",
            "tuned tables for a list of mixtures",
            write_tables,
            partial(check_tables, checks=_CHECKS),
            is_of_mixtures,
            picked_mixtures,
        ),
    )
)

"""Tuned tables for AITER, of shapes without tuning, and exported C; predicted rows are separate from measured ones.

A shape for which AITER finds a measured row, padded or not, gets no predicted row, whether that row is in `--data` or
in the tables of the installed AITER. All other shapes get the best-ranked kernel that AITER builds, by its own lists in
Python.
"""

from __future__ import annotations

import json
import re
import tempfile
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import load_arch
from ckh.errors import DataError, NoKernelError
from ckh.export.consumers import ChoiceTable, Consumers
from ckh.export.groups import DTYPE, Code, Exported, ProblemKind, ruled_group
from ckh.files.child import code_command
from ckh.ops.aiter.checking import TableChecks, check_tables
from ckh.ops.aiter.installed import (
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
from ckh.ops.aiter.tables import fastest, timed_rows
from ckh.ops.aiter_gemm import library_of
from ckh.ops.aiter_gemm.kernel import (
    NUMBERED_BY,
    RULES,
    InstalledKernel,
    kernel_numbers,
    kernel_pool,
    parse_kernel,
    resolved,
)
from ckh.ops.aiter_gemm.operation import KEY, OPERATION, key_cells, looked_up, padded_m
from ckh.ops.aiter_gemm.problem import (
    ANY,
    BATCHED,
    CK,
    CKTILE,
    FAMILIES,
    FBGEMM,
    GROUPED,
    LIBRARIES,
    SIZES,
    AiterGemm,
    has_pool,
    libraries_of,
    parse_aiter_gemm,
)
from ckh.ops.aiter_gemm.tuned import NO_ID, TunedLine, columns_of, gemm_table
from ckh.text.log import note_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ckh.data.dataset import Dataset
    from ckh.export.consumers import Choices, ExportedChoice, WrittenChoices
    from ckh.export.groups import Group
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.aiter.installed import OwnTable

_LOOKUP = "ops/gemm_op_a8w8.py"  # AITER's file with the lookup of most families
_SHORT = {"a4w4_blockscale": "a4w4"}  # name of a family in AITER's variables, if another
# What distinguishes versions of the lookup.
_WITHOUT_PADDING = "def get_bpreshuffle_GEMM_config("  # newer versions have one lookup for two families
_ABOVE_ALL = "_config_for_m_above_table("  # in versions of the second half of 2026
_MOST_LISTED_S, _MOST_KERNELS = 60, 100_000
# Runs a generator as on a GPU with this many compute units; PyTorch and rocminfo are replaced.
_GENERATE = """
import os, runpy, sys, types
path, num_cus, *args = sys.argv[1:]
torch, guard, extension = (types.ModuleType(name) for name in ("torch", "torch_guard", "cpp_extension"))
device = types.SimpleNamespace(multi_processor_count=int(num_cus))
torch.cuda = types.SimpleNamespace(
    is_available=lambda: True, current_device=lambda: 0, get_device_properties=lambda _: device
)
guard.torch_compile_guard = lambda *_, **__: lambda function: function
extension.executable_path = lambda name: name
sys.modules |= {module.__name__: module for module in (torch, guard, extension)}
sys.path.insert(0, os.path.dirname(path))
sys.argv = [path, *args]
runpy.run_path(path, run_name="__main__")
"""
# Prints the numbers and names of the kernels of a file's longest list; its imports find files in the same folder.
_PRINT = """
import importlib.util, json, os, sys
path = sys.argv[1]
sys.path.insert(0, os.path.dirname(path))
spec = importlib.util.spec_from_file_location("kernels_of_aiter", path)
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
lists = [
    [[number, kernel.name] for number, kernel in one.items() if isinstance(number, int) and number >= 0]
    for one in vars(module).values()
    if isinstance(one, dict) and one and all(isinstance(getattr(kernel, "name", None), str) for kernel in one.values())
]
print(json.dumps(max(lists, key=len, default=[])))
"""


def _table(family: str) -> TunedTable:
    variable = f"AITER_CONFIG_GEMM_{_SHORT.get(family, family).upper()}"
    return TunedTable(f"{family}_tuned_gemm", variable, KEY, columns_of(family), f"ops/gemm_op_{family[:4]}.py")


@cache
def installed_kernels(root: Path, family: str, library: str) -> dict[str, InstalledKernel]:
    """Return the kernels of a family by the names that ckh uses; older versions had other names, some one library."""
    if library not in LIBRARIES:
        first, *others = libraries_of(library)
        own = dict(installed_kernels(root, family, first))
        for name in others:
            with suppress(DataError):
                own |= installed_kernels(root, family, name)
        return own
    if library not in (CK, CKTILE):
        return _named(root, family, library)
    name = f"gemm_{family}" if library == CK else f"gemm_{family}_{library}"
    path = source_file(root, f"csrc/*/{name}_common.py", f"csrc/*/{name}_instance.py")
    if path is None:
        missing = f"no csrc/*/{name}_*.py in or beside it"
        raise DataError(f"{root} has no kernels of {library} for {family}: there is {missing}", code="no-aiter")
    done = run_aiter(code_command(_PRINT, str(path)), most_s=_MOST_LISTED_S)
    if done.returncode or not done.stdout:
        raise DataError(f"cannot read AITER's kernels in {path}: {last_line(done.stderr)}", code="no-aiter")
    rows = json.loads(done.stdout.splitlines()[-1])
    if not 0 < len(rows) <= _MOST_KERNELS:
        raise DataError(f"{path} has no list of kernels", code="no-aiter")
    kernels: dict[str, InstalledKernel] = {}
    for number, listed in rows:
        kernels.setdefault(resolved(str(listed)), InstalledKernel(str(listed), int(number)))
    return kernels


def _named(root: Path, family: str, library: str) -> dict[str, InstalledKernel]:
    """Return the kernels of a library that is not Composable Kernel's: those that AITER's own tables name."""
    named: dict[str, InstalledKernel] = {}
    for row in _table(family).of_root(root).rows.values():
        with suppress(DataError):
            kernel = parse_kernel(row.get("kernelName", ""))
            if kernel.library == library:
                named[kernel.base] = InstalledKernel(kernel.base, int(float(row.get("kernelId") or NO_ID)))
    return named


def write_tables(choices: Choices) -> WrittenChoices:
    """Write the tables for the problems of answers; problems without a kernel are listed as missing."""
    measured = _measured(choices.measured)
    lines: dict[tuple[Any, str], TunedLine] = {}

    def choose(answer: Ranking) -> ExportedChoice:
        line, basis = _kept(answer, measured, choices) or _predicted(answer, choices.installed)
        if not isinstance(line, TunedLine):
            return choice_row(answer, line, line["kernelName"], basis)
        lines[line.key, line.kernel] = line  # of two kernels for a shape the table is refused
        return choice_row(answer, line, line.kernel, basis)

    rows, missing = chosen(choices.answers, choose)
    root = choices.installed
    numbered_by = NUMBERED_BY if root is None else f"that of the AITER in {root}"
    return written_choices(
        list(lines.values()),
        lambda line: _table(line.problem.family),
        gemm_table,
        rows.values(),
        missing,
        root,
        f"- `kernelId` is {numbered_by}.\n",
    )


def _kept(
    answer: Ranking, measured: Mapping[tuple[str, AiterGemm], TunedLine], choices: Choices
) -> tuple[TunedLine | Mapping[str, str], str] | None:
    """Return the measured row that AITER finds for a problem: of --data or its own, the faster if both have it."""
    problem: Any = answer.problem
    arch, root = answer.model.spec.arch, choices.installed
    own = None if root is None or choices.replaces else _table(problem.family).of_root(root)
    # Versions of 2025 do not look up padded M for shuffled operands.
    pads = problem.family != "a8w8_bpreshuffle" or _WITHOUT_PADDING not in source_text(root, _LOOKUP)
    for m in looked_up(problem) if pads else (problem.m,):
        padded = replace(problem, m=m)
        row = measured.get((arch, replace(padded, library=ANY)))
        kept = None if own is None else own.find(key_cells(arch, padded))
        at = "" if m == problem.m else f" at M={m}"
        if row is not None and (kept is None or row.time_us < float(kept["us"])):
            return replace(row, built_as=_built_as(row.kernel, row.problem, root)), "measured" + at
        if kept is not None:
            return kept, at
    largest = None if own is None else _row_above_all(own, root, key_cells(arch, problem))
    return None if largest is None else (largest, f" at M={largest['M']}")


def _row_above_all(own: OwnTable, root: Path | None, cells: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return the row of a layer's largest M, which newer versions use for every larger M; None if they do not."""
    if _ABOVE_ALL not in source_text(root, _LOOKUP) or "q_dtype_w" not in own.key:
        return None
    largest = max(own.but_for("M", cells), key=lambda row: int(row["M"]), default=None)
    return None if largest is None or int(largest["M"]) >= int(cells["M"]) else largest


def _predicted(answer: Ranking, root: Path | None) -> tuple[TunedLine, str]:
    """Return the row of the best-ranked kernel that AITER has, and the basis of its time."""
    problem: Any = answer.problem
    arch = answer.model.spec.arch
    if FBGEMM in problem.library or problem.family in (*BATCHED, *GROUPED):
        raise NoKernelError(f"AITER has no kernels of FBGEMM: {problem.canonical()}")
    if answer.failure is not None:
        raise answer.failure
    names = kernel_numbers() if root is None else installed_kernels(root, problem.family, problem.library)
    kernel = best_kernel(answer, root, lambda name: parse_kernel(name).base in names)
    if (first := library_of(answer.ranked[0].name)) != library_of(kernel):
        where = f"the AITER in {root} does not have them" if root else "--installed AITER says whether yours has them"
        note_once(f"kernels of {first} are first for some shapes, which get the best of another library: {where}")
    built = _built_as(kernel, problem, root)
    line = TunedLine(arch, problem, kernel, bound_us(problem, arch), is_predicted=True, built_as=built)
    return line, "bounded by the slowest of all winners"


def _built_as(kernel: str, problem: AiterGemm, root: Path | None) -> InstalledKernel:
    """Return name and number of a kernel in the installed AITER, or in the shipped list."""
    base = parse_kernel(kernel).base
    if root is None:
        if base not in kernel_numbers():
            raise DataError(
                f"the number of {base} differs between versions of AITER",
                "name yours with --installed AITER",
                code="aiter-version",
            )
        return InstalledKernel(base, kernel_numbers()[base])
    names = installed_kernels(root, problem.family, parse_kernel(kernel).library)
    if base not in names:
        raise DataError(
            f"AITER in {root} has no kernel {base}, which {problem.canonical()} was measured with",
            code="unknown-kernel",
        )
    return names[base]


def _measured(dataset: Dataset | None) -> dict[tuple[str, AiterGemm], TunedLine]:
    """Return the fastest measured row of each shape."""
    rows = timed_rows(dataset, OPERATION) if dataset else ()
    lines = fastest(TunedLine(*fields) for fields in rows if not fields[-1])
    return {(line.arch, line.problem): line for line in lines}


def _picked(folder: Path, arch: str, problems: Sequence[AiterGemm]) -> list[str]:
    """Return the kernels, with their split of K, that AITER finds in an export; empty where it finds no row."""
    picks: dict[AiterGemm, str] = {}
    for family in dict.fromkeys(problem.family for problem in problems):
        group = [problem for problem in problems if problem.family == family]
        keys = [[key_cells(arch, replace(problem, m=m)) for m in looked_up(problem)] for problem in group]
        for problem, row in zip(group, found_rows(folder, f"{family}_tuned_gemm", KEY, keys), strict=True):
            base, split = ("", 0) if row is None else (resolved(row["kernelName"]), int(float(row["splitK"])))
            picks[problem] = f"{base}_splitk{split}" if split else base
    return [picks[problem] for problem in problems]


def _shape(arch: str, problem: AiterGemm) -> dict[str, Any]:
    return {**key_cells(arch, problem), "padded": [padded_m(problem.m, problem.n, level) for level in (0, 1)]}


def _omitted(root: Path, table: TunedTable, device: tuple[str, int], file: Path) -> Callable[[Mapping[str, Any]], str]:
    """Return what the generator of a table's family omits from the table, by choice."""
    family = table.name.removesuffix("_tuned_gemm")
    generator = f"csrc/ck_gemm_{family}/gen_instances.py"
    path = source_file(root, generator)
    if path is None:
        raise DataError(f"{root} has no generator of {family}: there is no {generator}", code="no-aiter")
    with tempfile.TemporaryDirectory() as made:
        command = code_command(_GENERATE, str(path), str(device[1]), "-w", made, "-f", str(file))
        # The last variable has precedence.
        device_of = {"GPU_ARCHS": device[0], "CU_NUM": str(device[1]), "AITER_GPU_TARGETS": f"{device[0]}:{device[1]}"}
        done = run_aiter(command, environment=device_of)
        text = "".join(path.read_text() for path in Path(made).glob("*lookup*.h"))
    entries = re.findall(r"\{\{([^{}]*)\},\s*\\?\s*(\w+)<", text)
    by_shape = {tuple(map(int, key.split(",")[-3:])): name for key, name in entries if key.count(",") > 1}
    names = {resolved(name) for name in re.findall(r"\w{20,}", text)}

    def wrong(choice: Mapping[str, Any]) -> str:
        problem, kernel = parse_aiter_gemm(choice["problem"]), parse_kernel(choice["kernel"])
        base = kernel.base
        if kernel.library != CK:
            return ""
        if done.returncode:
            return f"AITER's generator ends with {last_line(done.stderr)}"
        own = by_shape.get((problem.m, problem.n, problem.k))
        if base not in names or (own is not None and resolved(own) != base):
            return f"AITER's generator has {own or 'nothing'} instead of {base}"
        return ""

    return wrong


def _is_same(kernel: str, row: Mapping[str, str]) -> bool:
    chosen = parse_kernel(kernel)
    return resolved(row["kernelName"]) == chosen.base and int(float(row["splitK"])) == chosen.split_k


_CHECKS = TableChecks(parse_aiter_gemm, lambda problem: _table(problem.family), _shape, _omitted, _is_same)
CONSUMERS = Consumers(
    tables=(
        ChoiceTable(
            "aiter",
            "tuned tables for a list of shapes",
            write_tables,
            partial(check_tables, checks=_CHECKS),
            picked=_picked,
        ),
    )
)


_FAMILIES = tuple(name for name in FAMILIES if name not in (*BATCHED, *GROUPED))  # C's struct has no groups
_IN_C = (CK, CKTILE, FBGEMM, ANY, f"{CK}_{CKTILE}")  # other sets of libraries are not in C
KIND = ProblemKind(
    "aiter_gemm",
    2,
    "a GEMM of AITER: M tokens, B of N x K; `num_cus` compute units must be stated.",
    (
        DTYPE,
        Code("family", "family", 2, _FAMILIES, "CKH_AITER_", "CKH_AITER_FAMILIES", added=1),
        Code("library", "library", 3, _IN_C, "CKH_AITER_", "CKH_AITER_LIBRARIES"),
    ),
    SIZES,
    AiterGemm,
    {"m": 16, "n": 7168, "k": 2048, "num_cus": 256},
)


def _groups(model: Model) -> Iterator[Group]:
    arch = load_arch(model.spec.arch)
    for family in _FAMILIES:
        for library in _IN_C:
            for dtype in (type_name for type_name in FAMILIES[family] if has_pool(family, library, type_name)):
                example = AiterGemm(1, 1, 1, family, dtype, library, num_cus=1)
                yield ruled_group(KIND, example, kernel_pool(family, library, arch.name), RULES, arch)


EXPORTED = Exported(KIND, _groups)

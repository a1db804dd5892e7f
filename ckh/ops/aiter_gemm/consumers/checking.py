"""Check of exported tables by an installed AITER: its own generator and lookup, run without a GPU."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.export.consumers import CheckedTable
from ckh.files.child import code_command, module_command
from ckh.ops.aiter_gemm.consumers import lookup_script
from ckh.ops.aiter_gemm.consumers.own_tables import configs_of, table_files
from ckh.ops.aiter_gemm.kernel import parse_kernel
from ckh.ops.aiter_gemm.kernels.installed import source_file
from ckh.ops.aiter_gemm.kernels.pool import resolved
from ckh.ops.aiter_gemm.problem import CK, parse_aiter_gemm
from ckh.ops.aiter_gemm.readers.tuned_csv import KEY, VARIABLES, key_cells, padded_m

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_TIMEOUT_S = 600
# AITER's file with the lookup of a family, below its package.
_LOOKUP, _LOOKUP_OF_A4W4 = "ops/gemm_op_a8w8.py", "ops/gemm_op_a4w4.py"
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


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A table to check.

    Attributes:
        name: name of AITER's table, without `.csv`.
        variable: environment variable that names the table.
        key: the columns by which AITER looks a row up.
        source: AITER's file with the lookup, below its package.
        device: architecture and compute units.
        choices: rows of the export's list.
        shapes: the key of each choice, as the lookup takes it.
    """

    name: str
    variable: str
    key: tuple[str, ...]
    source: str
    device: tuple[str, int]
    choices: Sequence[Mapping[str, Any]]
    shapes: Sequence[Mapping[str, Any]]


def check_tables(folder: Path, document: Mapping[str, Any], root: Path) -> list[CheckedTable]:
    """Check an export of GEMMs with AITER's code."""
    by_table: dict[tuple[str, str, int], list[Mapping[str, Any]]] = {}
    for row in document["choices"]:
        problem = parse_aiter_gemm(row["problem"])
        by_table.setdefault((problem.family, row["arch"], problem.num_cus), []).append(row)
    result = []
    for (family, arch, num_cus), rows in by_table.items():
        problems = [parse_aiter_gemm(row["problem"]) for row in rows]
        shapes = [
            {**key_cells(arch, problem), "padded": [padded_m(problem.m, problem.n, level) for level in (0, 1)]}
            for problem in problems
        ]
        name = f"{family}_tuned_gemm"
        source = _LOOKUP_OF_A4W4 if family == "a4w4_blockscale" else _LOOKUP
        table = TableCheck(name, VARIABLES[family], KEY, source, (arch, num_cus), rows, shapes)

        def built(file: Path, device: tuple[str, int], family: str = family) -> Callable[[Mapping[str, Any]], str]:
            return _built(root, family, device, file)

        if checked := check_table(folder, document, root, table, built, _is_same):
            result.append(checked)
    return result


def check_table(
    folder: Path,
    document: Mapping[str, Any],
    root: Path,
    table: TableCheck,
    built: Callable[[Path, tuple[str, int]], Callable[[Mapping[str, Any]], str]],
    is_same: Callable[[str, Mapping[str, str]], bool],
) -> CheckedTable | None:
    """Check one table with AITER's code; None if the export has no table of that name.

    Args:
        folder: the export.
        document: the export's list.
        root: AITER.
        table: the table to check.
        built: given the file that AITER reads and the device, returns a function that describes what is wrong with the
            kernel of a choice.
        is_same: whether a row that AITER found has the chosen kernel.
    """
    paths = [folder / kind / f"{table.name}.csv" for kind in ("merged", "measured", "predicted")]
    paths = [path for path in paths if path.is_file()]
    if not paths:
        return None
    configs = configs_of(root)
    if configs is None:
        raise DataError(f"{root} has no tables of AITER: no folder configs in or beside it", code="no-aiter")
    with tempfile.TemporaryDirectory() as work:
        own, mine = Path(work, "aiter", "configs"), Path(work, "export")
        shutil.copytree(configs, own)
        mine.mkdir()
        exported = [Path(shutil.copy(path, mine / f"{path.parent.name}_{path.name}")) for path in paths]
        if paths[0].parent.name == "merged":
            exported, value = exported[:1], str(exported[0])
        else:
            value = os.pathsep.join(map(str, [*table_files(Path(work), table.name), *exported]))
        before = [path.read_bytes() for path in exported]
        result = _looked_up(configs.parent, table, Path(work), value)
        is_unchanged = before == [path.read_bytes() for path in exported]
        failure = str(result["failure"])
        if failure:
            return CheckedTable(table.name, 0, 0, 0, is_unchanged, failure, ())
        wrong_kernel = built(Path(result["file"]), table.device)
        keys = [{tuple(key) for key in some} for some in result["keys"]]
        shapes = [
            _shape(choice, today, now, wrong_kernel, is_same, replaces=bool(document.get("replaces")))
            for choice, today, now in zip(table.choices, *result["rows"], strict=True)
        ]
        return CheckedTable(
            paths[0].relative_to(folder).as_posix(),
            *(len(keys[0]), len(keys[1]), len(keys[0] - keys[1])),
            is_unchanged=is_unchanged,
            failure="",
            shapes=tuple(shapes),
        )


def _shape(
    choice: Mapping[str, Any],
    today: Mapping[str, str] | None,
    now: Mapping[str, str] | None,
    wrong_kernel: Callable[[Mapping[str, Any]], str],
    is_same: Callable[[str, Mapping[str, str]], bool],
    *,
    replaces: bool,
) -> dict[str, Any]:
    """Return the rows that AITER finds for a problem without and with the export, and the fault if any; for JSON."""
    wrong = ""
    if now is None:
        wrong = "AITER finds no row"
    elif not choice["written"]:
        wrong = "" if now == {**(today or {}), **now} else "AITER takes another row than without the export"
    elif not is_same(choice["kernel"], now):
        wrong = f"AITER takes another kernel: {_kernel(now)}"
    elif choice["predicted"] and today is not None and not replaces:
        wrong = f"a prediction displaces AITER's row with {_kernel(today)}"
    else:
        wrong = wrong_kernel(choice)
    return {"problem": choice["problem"], "today": _taken(today), "export": _taken(now), "wrong": wrong}


def _taken(row: Mapping[str, str] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "kernel": _kernel(row),
        "split_k": row.get("splitK", row.get("ksplit", "0")),
        "us": row.get("us", ""),
        "predicted": row.get("predicted", "0") in ("1", "1.0"),
    }


def _kernel(row: Mapping[str, str]) -> str:
    names = [row.get(name, "") for name in ("kernelName", "kernelName1", "kernelName2")]
    return "+".join(name for name in names if name)


def _looked_up(package: Path, table: TableCheck, work: Path, value: str) -> Mapping[str, Any]:
    core, source = package / "jit" / "core.py", package / table.source
    if missing := [path for path in (core, source) if not path.is_file()]:
        raise DataError(
            f"AITER in {package} has no {missing[0].relative_to(package)}",
            "name its source or package",
            code="no-aiter",
        )
    wanted = {
        "core": str(core),
        "source": str(source),
        "root": str(work),
        "work": str(work),
        "variable": table.variable,
        "default": str(work / "aiter" / "configs" / f"{table.name}.csv"),
        "name": table.name,
        "value": value,
        "key": list(table.key),
        "gfx": table.device[0],
        "cu_num": table.device[1],
        "shapes": list(table.shapes),
        "is_of_mixtures": "fmoe" in table.name,
    }
    command = module_command(lookup_script.__name__)
    done = run_aiter(command, json.dumps(wanted), {})
    try:
        document: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise DataError(
            f"cannot run AITER's lookup in {package}: {last_line(done.stderr)}", code="aiter-failed"
        ) from None
    return document


def run_aiter(command: list[str], text: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program of AITER's."""
    try:
        return subprocess.run(
            command,
            input=text,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DataError(f"cannot run AITER's code: {error}", code="aiter-failed") from error


def last_line(text: str) -> str:
    """Return the last line of a program's output."""
    return next((line for line in reversed(text.splitlines()) if line.strip()), "it failed")


def _built(root: Path, family: str, device: tuple[str, int], file: Path) -> Callable[[Mapping[str, Any]], str]:
    """Return what the generator of a family omits from a table, by choice."""
    generator = f"csrc/ck_gemm_{family}/gen_instances.py"
    path = source_file(root, generator)
    if path is None:
        raise DataError(f"{root} has no generator of {family}: there is no {generator}", code="no-aiter")
    with tempfile.TemporaryDirectory() as made:
        command = code_command(_GENERATE, str(path), str(device[1]), "-w", made, "-f", str(file))
        done = run_aiter(command, "", _built_for(*device))
        text = "".join(path.read_text() for path in Path(made).glob("*lookup*.h"))
    entries = re.findall(r"\{\{([^{}]*)\},\s*\\?\s*(\w+)<", text)
    by_shape = {tuple(map(int, key.split(",")[-3:])): name for key, name in entries if key.count(",") > 1}
    names = {resolved(name) for name in re.findall(r"\w{20,}", text)}

    def wrong(choice: Mapping[str, Any]) -> str:
        problem, base = parse_aiter_gemm(choice["problem"]), parse_kernel(choice["kernel"]).base
        if problem.library != CK:
            return ""
        if done.returncode:
            return f"AITER's generator ends with {last_line(done.stderr)}"
        own = by_shape.get((problem.m, problem.n, problem.k))
        if base not in names or (own is not None and resolved(own) != base):
            return f"AITER's generator has {own or 'nothing'} instead of {base}"
        return ""

    return wrong


def _built_for(arch: str, num_cus: int) -> dict[str, str]:
    """Return the environment that sets the device of AITER's generators; the last variable has precedence."""
    return {"GPU_ARCHS": arch, "CU_NUM": str(num_cus), "AITER_GPU_TARGETS": f"{arch}:{num_cus}"}


def _is_same(kernel: str, row: Mapping[str, str]) -> bool:
    chosen = parse_kernel(kernel)
    return resolved(row["kernelName"]) == chosen.base and int(float(row["splitK"])) == chosen.split_k

"""Check of exported tables by an installed AITER: its own generator and lookup, run without a GPU."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.errors import DataError
from ckh.export.consumers import CheckedFile, CheckedShape, TakenRow
from ckh.files.child import module_command
from ckh.ops.aiter import lookup_script
from ckh.ops.aiter.installed import configs_of, last_line, run_aiter, table_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ckh.ops.aiter.installed import TunedTable


@dataclass(frozen=True, slots=True)
class TableChecks:
    """What is checked of an operation's tables."""

    parse: Callable[[str], Any]  # a problem's text
    table_of: Callable[[Any], TunedTable]  # that of a problem
    shape: Callable[[str, Any], Mapping[str, Any]]  # key of a problem on an architecture, as the lookup takes it
    built: Callable[[Path, TunedTable, tuple[str, int], Path], Callable[[Mapping[str, Any]], str]]
    """Given AITER's folder, a table, a device and the file that AITER reads, returns a function that describes what is
    wrong with the kernel of a choice."""
    is_same: Callable[[str, Mapping[str, str]], bool]  # whether a row that AITER found has the chosen kernel


def check_tables(folder: Path, document: Mapping[str, Any], root: Path, checks: TableChecks) -> tuple[CheckedFile, ...]:
    """Check the tables of an export, by its folder and list, with AITER's code."""
    tables: dict[tuple[str, str, int], list[tuple[Any, Mapping[str, Any]]]] = {}
    for row in document["choices"]:
        problem = checks.parse(row["problem"])
        tables.setdefault((checks.table_of(problem).name, row["arch"], problem.num_cus), []).append((problem, row))
    checked = (
        _check(folder, document, root, checks, (arch, num_cus), rows) for (_, arch, num_cus), rows in tables.items()
    )
    return tuple(table for table in checked if table is not None)


def _check(
    folder: Path,
    document: Mapping[str, Any],
    root: Path,
    checks: TableChecks,
    device: tuple[str, int],
    rows: Sequence[tuple[Any, Mapping[str, Any]]],
) -> CheckedFile | None:
    """Check the table of these choices, by problem; None if the export has no such table."""
    table = checks.table_of(rows[0][0])
    paths = [folder / kind / f"{table.name}.csv" for kind in ("merged", "measured", "predicted")]
    paths = [path for path in paths if path.is_file()]
    if not paths:
        return None
    configs = configs_of(root)
    if configs is None:
        raise DataError(f"{root} has no tables of AITER: no folder configs in or beside it", code="no-aiter")
    with tempfile.TemporaryDirectory() as work:
        own, export = Path(work, "aiter", "configs"), Path(work, "export")
        shutil.copytree(configs, own)
        export.mkdir()
        exported = [Path(shutil.copy(path, export / f"{path.parent.name}_{path.name}")) for path in paths]
        if paths[0].parent.name == "merged":
            exported, path_list = exported[:1], str(exported[0])
        else:
            path_list = os.pathsep.join(map(str, [*table_files(Path(work), table.name), *exported]))
        before = [path.read_bytes() for path in exported]
        keys_of_shapes = [checks.shape(device[0], problem) for problem, _ in rows]
        lookup = _looked_up(configs.parent, table, device, keys_of_shapes, Path(work), path_list)
        is_unchanged = before == [path.read_bytes() for path in exported]
        rewritten = [] if is_unchanged else ["the exported file was rewritten"]
        failure = str(lookup["failure"])
        if failure:
            return CheckedFile(table.name, 0, 0, 0, is_unchanged, (failure, *rewritten), ())
        wrong_kernel = checks.built(root, table, device, Path(lookup["file"]))
        keys = [{tuple(key) for key in table_keys} for table_keys in lookup["keys"]]
        shapes = [
            _shape(choice, today, now, wrong_kernel, checks.is_same, replaces=bool(document.get("replaces")))
            for (_, choice), today, now in zip(rows, *lookup["rows"], strict=True)
        ]
        lost = len(keys[0] - keys[1])
        problems = [f"{lost} of {len(keys[0])} rows are lost"] if lost else []
        problems += rewritten + [f"{shape.problem}: {shape.wrong}" for shape in shapes if shape.wrong]
        file = paths[0].relative_to(folder).as_posix()
        return CheckedFile(file, len(keys[0]), len(keys[1]), lost, is_unchanged, tuple(problems), tuple(shapes))


def _shape(
    choice: Mapping[str, Any],
    today: Mapping[str, str] | None,
    now: Mapping[str, str] | None,
    wrong_kernel: Callable[[Mapping[str, Any]], str],
    is_same: Callable[[str, Mapping[str, str]], bool],
    *,
    replaces: bool,
) -> CheckedShape:
    """Return the rows that AITER finds for a problem without and with the export, and the fault if any."""
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
    return CheckedShape(choice["problem"], _taken(today), _taken(now), wrong)


def _kernel(row: Mapping[str, str]) -> str:
    names = [row.get(name, "") for name in ("kernelName", "kernelName1", "kernelName2")]
    return "+".join(name for name in names if name)


def _taken(row: Mapping[str, str] | None) -> TakenRow | None:
    if row is None:
        return None
    split_k, predicted = row.get("splitK", row.get("ksplit", "0")), row.get("predicted", "0") in ("1", "1.0")
    return TakenRow(_kernel(row), split_k, row.get("us", ""), predicted)


def _looked_up(
    package: Path,
    table: TunedTable,
    device: tuple[str, int],
    shapes: Sequence[Mapping[str, Any]],
    work: Path,
    path_list: str,
) -> Mapping[str, Any]:
    """Return what AITER's lookup finds for shapes without and with the files that a variable's value names."""
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
        "value": path_list,
        "key": list(table.key),
        "gfx": device[0],
        "cu_num": device[1],
        "shapes": shapes,
        "is_of_mixtures": "fmoe" in table.name,
    }
    done = run_aiter(module_command(lookup_script.__name__), json.dumps(wanted))
    try:
        document: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise DataError(
            f"cannot run AITER's lookup in {package}: {last_line(done.stderr)}", code="aiter-failed"
        ) from None
    return document

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
from ckh.export.consumers import CheckedTable
from ckh.files.child import module_command
from ckh.ops.aiter import lookup_script
from ckh.ops.aiter.installed import configs_of, last_line, run_aiter, table_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A table to check, and what its family's generator builds."""

    name: str  # of AITER's table, without `.csv`
    variable: str  # environment variable that names the table
    key: tuple[str, ...]  # the columns by which AITER looks a row up
    source: str  # AITER's file with the lookup, below its package
    device: tuple[str, int]  # architecture and compute units
    choices: Sequence[Mapping[str, Any]]  # rows of the export's list
    shapes: Sequence[Mapping[str, Any]]  # the key of each choice, as the lookup takes it
    built: Callable[[Path], Callable[[Mapping[str, Any]], str]]
    """Given the file that AITER reads, returns a function that describes what is wrong with the kernel of a choice."""
    is_same: Callable[[str, Mapping[str, str]], bool]  # whether a row that AITER found has the chosen kernel


def check_table(folder: Path, document: Mapping[str, Any], root: Path, table: TableCheck) -> CheckedTable | None:
    """Check a table of an export, by its folder and list, with AITER's code; None if it has no table of that name."""
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
        wrong_kernel = table.built(Path(result["file"]))
        keys = [{tuple(key) for key in some} for some in result["keys"]]
        shapes = [
            _shape(choice, today, now, wrong_kernel, table.is_same, replaces=bool(document.get("replaces")))
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


def _kernel(row: Mapping[str, str]) -> str:
    names = [row.get(name, "") for name in ("kernelName", "kernelName1", "kernelName2")]
    return "+".join(name for name in names if name)


def _taken(row: Mapping[str, str] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        "kernel": _kernel(row),
        "split_k": row.get("splitK", row.get("ksplit", "0")),
        "us": row.get("us", ""),
        "predicted": row.get("predicted", "0") in ("1", "1.0"),
    }


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
    done = run_aiter(module_command(lookup_script.__name__), json.dumps(wanted))
    try:
        document: Mapping[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        raise DataError(
            f"cannot run AITER's lookup in {package}: {last_line(done.stderr)}", code="aiter-failed"
        ) from None
    return document

"""Rows that AITER finds for shapes, by its own code: a script that runs separately, with GPU dependencies replaced.

Reads a JSON document on stdin and prints one. AITER's modules are not imported, as they need PyTorch and a GPU: the
functions that join tables (`aiter/jit/core.py`) and those that look rows up are extracted from their sources. Files
that they write go to a folder of the caller's.
"""

from __future__ import annotations

import ast
import functools
import json
import logging
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

from ckh.ops.aiter.devices import ARCH_OF_CUS

# The lookup of mixtures, its variable for the row that it finds, and the functions that pad tokens.
_OF_MIXTURES, _FOUND, _PADDING = "get_2stage_cfgs", "cfg", ("nextPow2", "get_padded_M")
_INDEX_OF_MIXTURES = (
    *("cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype", "q_dtype_a"),
    *("q_dtype_w", "q_type", "use_g1u1", "doweight_stage1"),
)


def _compiled(nodes: list[Any]) -> list[types.CodeType]:
    """Compile statements, with functions stripped of decorators."""
    compiled = []
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.FunctionDef):
                inner.decorator_list = []
        compiled.append(compile("from __future__ import annotations\n" + ast.unparse(node), "aiter", "exec"))
    return compiled


def _run(statements: list[types.CodeType], names: dict[str, Any]) -> None:
    """Execute statements one by one; statements that fail are not needed by the lookup."""
    for statement in statements:
        try:
            exec(statement, names)  # noqa: S102 - the user's own AITER
        except Exception:  # noqa: BLE001, PERF203, S112 - a constant of PyTorch's, say
            continue


def _joining(core: str, wanted: dict[str, Any]) -> Any:
    """Return AITER's `get_config_file`, which joins tables; its files go below the caller's folder."""
    text = Path(core).read_text(encoding="utf-8").replace("/tmp/", wanted["work"] + "/")  # noqa: S108
    nodes = [
        node
        for node in ast.parse(text).body
        if getattr(node, "name", "") in ("update_config_files", "get_config_file", "AITER_CONFIG")
    ]
    chip = types.ModuleType("aiter.jit.utils.chip_info")
    chip.gfx_from_cu_num = lambda cus: ARCH_OF_CUS.get(int(cus), "")  # type: ignore[attr-defined]
    sys.modules[chip.__name__] = chip
    for name in ("aiter", "aiter.jit", "aiter.jit.utils"):
        sys.modules[name] = types.ModuleType(name)
    names: dict[str, Any] = {
        "os": os,
        "re": re,
        "functools": functools,
        "logger": logging.getLogger("aiter"),
        "AITER_ROOT_DIR": wanted["root"],
        "mp_lock": lambda _path, write, *_others, **_more: write(),
    }
    _run(_compiled(nodes), names)
    return names["AITER_CONFIG"]().get_config_file if "AITER_CONFIG" in names else names["get_config_file"]


class _Files:
    """AITER's constants that name a table, each resolved to the table in question."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __getattr__(self, name: str) -> str:
        return self.path


def _gemm_rows(wanted: dict[str, Any], file: str) -> list[Any]:
    """Return the row of each GEMM, by AITER's own lookup."""
    import pandas as pd

    text = Path(wanted["source"]).read_text(encoding="utf-8")
    nodes = [node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.Assign, ast.AnnAssign))]
    padded = {(shape["M"], shape["N"]): shape["padded"] for shape in wanted["shapes"]}
    names: dict[str, Any] = {
        "pd": pd,
        "functools": functools,
        "logger": logging.getLogger("aiter"),
        "AITER_LOG_TUNED_CONFIG": 0,
        "AITER_ROOT_DIR": wanted["root"],
        "AITER_CONFIGS": _Files(file),
    }
    _run(_compiled(nodes), names)
    names |= dict.fromkeys(re.findall(r"AITER_CONFIG_\w+_FILE", text), file)
    names |= {
        "get_gfx": lambda: wanted["gfx"],
        "get_cu_num": lambda: wanted["cu_num"],
        "get_padded_m": lambda m, n, _k, level: padded[m, n][level],
    }
    stated = "q_dtype_w" in pd.read_csv(file, nrows=1).columns
    by_type = [name for name in ("get_GEMM_config_with_quant_type", "get_bpreshuffle_GEMM_config") if name in names]
    plain = [name for name in ("get_CKGEMM_config", "get_GEMM_config") if name in names]
    rows = []
    for shape in wanted["shapes"]:
        sizes = shape["M"], shape["N"], shape["K"]
        if stated and by_type:
            row = names[by_type[0]](*sizes, shape["q_dtype_w"], file)
        else:
            row = names[plain[0]](*sizes, *([file] if plain[0] == "get_CKGEMM_config" else []))
        rows.append(None if row is None else {name: str(value) for name, value in row.items()})
    return rows


def _mixture_rows(wanted: dict[str, Any], file: str) -> list[Any]:
    """Return the row of each mixture of experts, by AITER's own padding, reading of its table, and lookup."""
    tree = ast.parse(Path(wanted["source"]).read_text(encoding="utf-8"))
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == _OF_MIXTURES)
    names: dict[str, Any] = {
        "os": os,
        "functools": functools,
        "logger": logging.getLogger("aiter"),
        "gfx_from_cu_num": lambda cus: ARCH_OF_CUS.get(int(cus), ""),
        "get_gfx": lambda: wanted["gfx"],
        "get_gfx_runtime": lambda: wanted["gfx"],
        "get_cu_num": lambda: wanted["cu_num"],
        **dict.fromkeys(argument.arg for argument in function.args.args),
    }
    around = [node for node in tree.body if isinstance(node, ast.Assign) or getattr(node, "name", "") in _PADDING]
    lookup = _compiled(_up_to_the_row(function))
    _run([*_compiled(around), *lookup], names)
    table = names["get_cfg_2stages"](file)
    names |= {"cfg_2stages": table, "active_cfg_2stages": table}
    rows = (_mixture_row(shape, lookup, names) for shape in wanted["shapes"])
    return [None if row is None else {name: str(value) for name, value in row.items()} for row in rows]


def _up_to_the_row(function: ast.FunctionDef) -> list[ast.stmt]:
    """Return the functions and assignments of AITER's lookup, up to the assignment of the row that it finds."""
    statements: list[ast.stmt] = []
    for node in function.body:
        if isinstance(node, (ast.FunctionDef, ast.Assign)):
            statements.append(node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _FOUND:
            break
    return statements


def _mixture_row(shape: dict[str, Any], lookup: list[types.CodeType], names: dict[str, Any]) -> Any:
    """Return the row of a mixture, by the statements of AITER's lookup; by the whole key if these need PyTorch."""
    pad = names.get("get_padded_M", lambda tokens: tokens)
    key = {**shape, "token": pad(shape["token"])}
    names |= key | {"activation": shape["act_type"]}
    names.pop(_FOUND, None)
    _run(lookup, names)
    if _FOUND in names:
        return names[_FOUND]
    table = names["cfg_2stages"]
    table = table[0] if isinstance(table, tuple) else table
    return table.get(tuple(key[name] for name in names.get("_INDEX_COLS", _INDEX_OF_MIXTURES)))


def _keys(file: str, columns: list[str]) -> set[tuple[str, ...]]:
    import pandas as pd

    frame = pd.read_csv(file, dtype=str, keep_default_na=False)
    present = [name for name in columns if name in frame.columns]
    return set(frame[present].itertuples(index=False, name=None))


def _main() -> None:
    wanted = json.load(sys.stdin)
    get_config_file = _joining(wanted["core"], wanted)
    rows_of = _mixture_rows if wanted["is_of_mixtures"] else _gemm_rows
    document: dict[str, Any] = {"failure": "", "rows": [], "keys": []}
    for path_list in (None, wanted["value"]):
        os.environ.pop(wanted["variable"], None)
        if path_list is not None:
            os.environ[wanted["variable"]] = path_list
        try:
            file = get_config_file(wanted["variable"], wanted["default"], wanted["name"])
            copied = Path(wanted["work"], f"{len(document['rows'])}.csv")
            copied.write_bytes(Path(file).read_bytes())
            document["rows"].append(rows_of(wanted, str(copied)))
            document["keys"].append(sorted(_keys(str(copied), wanted["key"])))
            document["file"] = str(copied)
        except Exception as error:  # noqa: BLE001 - whatever AITER's code raises is the finding
            document["failure"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            break
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    _main()

"""What an installed AITER makes of exported tables of mixtures of experts, by its own generator and lookup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ckh.ops.aiter_gemm.consumers.checking import TableCheck, check_table
from ckh.ops.aiter_moe.kernel import CK_TILE, parts
from ckh.ops.aiter_moe.kernels.installed import built_kernels
from ckh.ops.aiter_moe.kernels.pool import newer_name
from ckh.ops.aiter_moe.problem import parse_aiter_moe
from ckh.ops.aiter_moe.readers.tuned_csv import KEY, NAME, VARIABLE, TunedMixture

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from ckh.export.consumers import CheckedTable


def check_tables(folder: Path, document: Mapping[str, Any], root: Path) -> list[CheckedTable]:
    """What AITER's code makes of an export of mixtures of experts.

    Raises:
        CkhError: there is no AITER, it lacks a file, or its code cannot be run.
    """
    devices: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in document["choices"]:
        devices.setdefault((row["arch"], parse_aiter_moe(row["problem"]).num_cus), []).append(row)
    found = []
    for device, rows in devices.items():
        problems = [parse_aiter_moe(row["problem"]) for row in rows]
        lines = (TunedMixture(device[0], one, "", 0.0, is_predicted=True) for one in problems)
        table = TableCheck(NAME, VARIABLE, KEY, "fused_moe.py", device, rows, [line.key_cells() for line in lines])
        if checked := check_table(folder, document, root, table, lambda _file, device: _built(root, device), _is_same):
            found.append(checked)
    return found


def _built(root: Path, device: tuple[str, int]) -> Callable[[Mapping[str, Any]], str]:
    def wrong(choice: Mapping[str, Any]) -> str:
        names = [newer_name(part.name) for part in parts(choice["kernel"])]
        if any(name.startswith(CK_TILE) for name in names):
            return ""
        built = built_kernels(root, device[0], parse_aiter_moe(choice["problem"]))
        missing = [name for name in names if name not in built]
        return f"AITER's generator does not emit {missing[0]}" if missing else ""

    return wrong


def _is_same(kernel: str, row: Mapping[str, str]) -> bool:
    return [newer_name(part.name) for part in parts(kernel)] == [row["kernelName1"], row["kernelName2"]]

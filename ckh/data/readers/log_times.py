"""Reader of the times in logs of libraries and their tools: those of CK Tile's kernels are measurements here.

Logs are those of `ckh shapes`: ckProfiler's, MIOpen's, hipBLASLt's and others. Times of kernels that ckh does not have,
such as Composable Kernel's own instances and MIOpen's solvers, are left out by name: `ckh shapes` lists the least of
each problem.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.data.readers.cells import source_of_file
from ckh.data.readers.journal_reader import MISMATCH
from ckh.data.readers.named_table import frame_table
from ckh.errors import CkhError, DataError
from ckh.ops import operation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ckh.data.formats import Reading, ReadOptions
    from ckh.data.readers.named_table import Table
    from ckh.shapes.logs import ShapeCounts

NAME = "library-log"


def sniff(head: bytes) -> bool:
    """True if the first bytes state a shape, as `ckh shapes` reads it."""
    from ckh.shapes.logs import statement_mark

    return b"\0" not in head and statement_mark().search(head) is not None


def read(path: Path, options: ReadOptions, read_table: Callable[[Table, ReadOptions], Reading]) -> Reading:
    """Read a log; `read_table` reads a table with an operation's columns."""
    from ckh.shapes.layers import RunOptions
    from ckh.shapes.logs import ShapeCounts, lines_of, read_log

    wanted = RunOptions(strict=options.strict)
    tally = ShapeCounts(wanted, keeps_times=True)
    with path.open("rb") as file:
        read_log(lines_of(file), str(path), wanted, tally)
    rows = _rows(tally)
    if not rows:
        why = "; ".join(tally.account.words()) or "it states no time"
        hint = "ckh shapes lists its problems, with the least time of each"
        raise DataError(f"{path} has no time of a kernel of CK Tile: {why}", hint, code="not-measured")
    (op, columns), *others = rows.items()
    if others:
        raise DataError(f"{path} has times of several operations: {', '.join(rows)}", "split it", code="mixed-data")
    source = source_of_file(path, NAME)
    table = replace(frame_table(columns), where=str(path), file_name=path.name, sha256=source["sha256"])
    reading = read_table(table, replace(options, op=op))
    reading.account.add(tally.account)
    return replace(reading, sources=(source,))


def _rows(tally: ShapeCounts) -> dict[str, dict[str, list[Any]]]:
    """Columns of the times of ckh's kernels by operation; the others are left out by the names of their kernels.

    The account's entries are then times, and lines without one.
    """
    from ckh.shapes.problems import problem_of_shape

    account = tally.account
    account.passed, account.used = account.passed + account.used - sum(map(len, tally.times.values())), 0
    rows: dict[str, dict[str, list[Any]]] = {}
    for (key, name), times in tally.times.items():
        try:
            op, problem = problem_of_shape(key.shape, key.op)
            kernel = operation(op).kernels.parse(name)
        except CkhError:
            kind = re.split("<|_splitk", name)[0][:60]
            account.leave_out(f"of {kind}, which is no kernel of CK Tile that ckh has", count=len(times))
            continue
        if mismatch := operation(op).kernels.mismatch(kernel, problem):
            account.doubt(MISMATCH, mismatch, len(times))
            continue
        columns = rows.setdefault(op, defaultdict(list))
        for column, values in (operation(op).problems.columns([problem]) | {"kernel": [name]}).items():
            columns[column] += [*values] * len(times)
        columns["latency_ms"] += times
    return rows

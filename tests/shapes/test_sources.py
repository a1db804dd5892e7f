"""Each kind of source that others write: one strange entry is left out and named, and the rest is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ckh.errors import DataError
from ckh.shapes.layers import RunOptions
from ckh.shapes.problems import shapes_of
from ckh.shapes.sources import SourceKind, source_of

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = Path(__file__).parent / "files"
GEMM = "gemm_bf16_rcr_m128_n128_k64_splitk1"


def _node(text: str) -> str:
    """A graph with one more node, which ckh does not read."""
    graph: dict[str, Any] = json.loads(text)
    graph["nodes"].append({**graph["nodes"][0], "type": "ReductionAttributes"})
    return json.dumps(graph)


def _event(text: str) -> str:
    """A trace with one more event, whose dimensions are no numbers."""
    trace: dict[str, Any] = json.loads(text)
    event = trace["traceEvents"][0]
    trace["traceEvents"].append({**event, "args": {**event["args"], "Input Dims": [["x"], ["y"]]}})
    return json.dumps(trace)


def _after(line: str) -> Callable[[str], str]:
    return lambda text: text.rstrip("\n") + f"\n{line}\n"


# Kind -> name of a file, its content, and the content with a strange entry.
SOURCES: dict[SourceKind, tuple[str, str, Callable[[str], str]]] = {
    SourceKind.GRAPH: ("graph.json", (FILES / "graph.json").read_text(), _node),
    SourceKind.TRACE: ("trace.json", (FILES / "trace.json").read_text(), _event),
    SourceKind.TABLE: (
        "shapes.csv",
        "op,count,layers,dtype,layout,m,n,k,split_k\ngemm_universal,3,a,bf16,rcr,128,128,64,1\n",
        _after("gemm_universal,3,b,bf16,rcr,inf,128,64,1"),
    ),
    SourceKind.UNTUNED: ("a8w8_untuned_gemm.csv", "M,N,K\n16,1536,7168\n", _after("16,tf32,7168")),
    SourceKind.LOG: ("run.log", (FILES / "blas.log").read_text(), _after("AUTOTUNE mm(16, 8192x1280)")),
    SourceKind.TEXTS: ("problems.txt", f"{GEMM}\n", _after("gemm_bf16_rcr_m0_n128_k64_splitk1")),
    SourceKind.PROBLEMS: ("problems.csv", "m,n,k\n128,128,64\n", _after("128,_comment,64")),
}
# Others have tests of their own: single layers of a model are left out there, not entries of a file.
WHOLE = {SourceKind.MODEL, SourceKind.NETWORK, SourceKind.CONFIG, SourceKind.ONNX, SourceKind.MODULE}


def test_every_kind_of_source_is_tried() -> None:
    """A new kind needs a sample with a strange entry."""
    assert SOURCES.keys() | WHOLE == set(SourceKind)


@pytest.mark.parametrize("kind", SOURCES)
def test_one_strange_entry_is_left_out(kind: SourceKind, tmp_path: Path) -> None:
    """The problems are the same, one entry more is left out, and the others are counted as before."""
    name, content, changed = SOURCES[kind]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    assert source_of(str(path)).kind is kind
    good = shapes_of([str(path)])
    path.write_text(changed(content), encoding="utf-8")
    found = shapes_of([str(path)])
    assert [item.problem for item in found.problems] == [item.problem for item in good.problems]
    assert found.account.used == good.account.used > 0
    left = sum(found.account.left_out.values()) - sum(good.account.left_out.values())
    assert left == 1, found.account.left_out
    if found.account.bad.total() > good.account.bad.total():
        with pytest.raises(DataError):
            shapes_of([str(path)], RunOptions(strict=True))


@pytest.mark.parametrize("kind", [SourceKind.TABLE, SourceKind.UNTUNED, SourceKind.PROBLEMS])
def test_a_row_that_the_end_of_a_file_cuts_is_left_out(kind: SourceKind, tmp_path: Path) -> None:
    """As of an interrupted download: fewer cells than the header and no end of line, also within a number."""
    name, content, _ = SOURCES[kind]
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    good = shapes_of([str(path)]).problems
    *cells, _, _ = content.splitlines()[-1].split(",")
    for last in ("", "1"):
        path.write_text(content + ",".join([*cells, last]), encoding="utf-8")
        found = shapes_of([str(path)])
        assert [(item.problem, item.count) for item in found.problems] == [(item.problem, item.count) for item in good]
        assert (found.account.bad.total(), found.account.used) == (1, 1)
        assert f"{name}:3" in next(iter(found.account.first.values()))

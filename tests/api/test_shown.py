"""Displayed values: short representations, tables for notebooks and rich, and data frames."""

from __future__ import annotations

import io
from ast import literal_eval
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import ckh
from ckh.learn.answers.answering import Chooser
from ckh.text.shown import MAX_ROWS, Shown, ShownTable
from ckh.tune.gains import TunedShape
from tests.learn.conftest import measured, saved

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LAYER = ckh.problem(n=16, c=256, dtype="fp32")
AITER_GEMM = "aiter_gemm_a8w8_blockscale_bpreshuffle_ck_fp8_cu80_m16_n512_k7168"
AITER_MOE = "aiter_moe_stage1_bf16_none_silu_cu256_t768_d4096_i192_e128_k8"
MOST_CHARACTERS = 400  # of a representation


class _Cells(HTMLParser):
    """The cells of a table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._is_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        self._is_cell = self._is_cell and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self._is_cell:
            self.rows[-1][-1] += data


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """One value of each kind, with the content of its first row."""
    folder: Path = tmp_path_factory.mktemp("shown")
    data = measured()
    gains = (2.0, (1.5, 2.5), None, "best", 2.5, (1.5, 3.0))
    shape = TunedShape("p", 2, ("a", "b"), "k", 2.0, None, "best", 1.0, *gains, 1.0)
    return {
        "ranked": ckh.rank(LAYER, arch="host"),
        "ranked for many": ckh.rank_many([LAYER], 2, arch="host")[0],
        "answer": ckh.answer(LAYER, arch="host"),
        "shapes": ckh.shapes.read("llama3-70b", tp=8),
        "dataset": data,
        "model": ckh.load_model(saved(folder / "loaded")),
        "evaluated": ckh.evaluate(data, saved(folder / "model"), among="measured", with_trained=True),
        "tuned": ckh.TuneDocument(
            folder="f",
            op="o",
            device=None,
            left_out=(),
            today_from="ckh predict before tuning",
            weights={},
            shapes=(shape,),
            today_ms=4.0,
            tuned_ms=2.0,
            gain=2.0,
            gain_interval=(1.5, 2.5),
            established=1,
            drift=None,
            unstable=0.0,
            shared=0,
            pairs=2,
            pairs_planned=2,
            is_complete=True,
            predicted_gain=2.5,
            predicted_gain_interval=(1.5, 3.0),
            is_worth_it=True,
            held_out_efficiency=None,
            model=None,
            export=None,
        ),
    }


FIRST: dict[str, Callable[[Any], str]] = {
    "ranked": lambda result: result[0].name,
    "ranked for many": lambda result: result[0].name,
    "answer": lambda result: result.kernels[0].kernel,
    "shapes": lambda result: result[0].problem.canonical(),
    "dataset": lambda result: result.problem(0).canonical(),
    "model": lambda result: str(result.path),
    "evaluated": lambda _: "model",
    "tuned": lambda _: "p",
}


@pytest.mark.parametrize("kind", FIRST)
def test_values_show_themselves(kind: str, values: Mapping[str, Any]) -> None:
    """One line, a table of up to twenty rows in a notebook and for rich, and a complete frame."""
    value = values[kind]
    assert len(repr(value)) < MOST_CHARACTERS
    assert "\n" not in repr(value)
    head, *rows = _Cells(value._repr_html_()).rows
    assert tuple(head) == value.table().columns
    assert rows[0][0] == FIRST[kind](value)
    assert len(rows) == min(len(value.table().rows), MAX_ROWS)
    assert {len(row) for row in rows} == {len(head)}
    stream = io.StringIO()
    Console(file=stream, width=2000).print(value)
    assert FIRST[kind](value) in stream.getvalue()
    assert len(value.to_frame()) >= len(rows) or kind == "evaluated"


@pytest.mark.parametrize(
    "problem",
    [
        LAYER,
        ckh.problem(n=1, c=8, ndim=3, di=4, variant="bwd_data", dtype="bf16"),
        ckh.problem(m=1, n=2, k=64, layout="rrr"),
        ckh.problem(AITER_GEMM),
        ckh.problem(AITER_MOE),
    ],
    ids=lambda item: type(item).__name__,
)
def test_repr_of_problems_can_be_pasted(problem: Any) -> None:
    """Evaluated, the representation gives an equal problem."""
    assert repr(problem) == f"ckh.problem({problem.canonical()!r})"
    assert ckh.problem(literal_eval(repr(problem).removeprefix("ckh.problem"))) == problem


def test_repr_of_loaded_models_can_be_pasted(values: Mapping[str, Any]) -> None:
    """Models that answer for another GPU show their purpose instead."""
    model = values["model"]
    assert ckh.load_model(literal_eval(repr(model).removeprefix("ckh.load_model"))).spec == model.spec
    assert values["model"].to_frame()["op_type"].tolist() == [model.spec.op_type]
    other = Chooser(None, "gfx942", "bf16", "gemm").model(ckh.problem(m=1, n=2, k=64, dtype="bf16"), stands_in=True)
    assert not repr(other).startswith("ckh.")
    assert other.spec.purpose in repr(other)


def test_frames_have_the_column_names_of_datasets(values: Mapping[str, Any]) -> None:
    """Kernel, speed and time have the names of measured data; all rows are included."""
    ranked = values["ranked"]
    frame = ranked.to_frame()
    assert frame["kernel"].tolist() == [candidate.name for candidate in ranked]
    assert frame["latency_ms"].tolist() == [candidate.latency_ms for candidate in ranked]
    known = {column.name for column in measured().op.training.columns}
    for kind in ("ranked", "answer", "evaluated"):
        assert {"kernel", "latency_ms"} <= set(values[kind].to_frame().columns) & known
    assert len(values["evaluated"].to_frame()) == values["evaluated"].result.coverage.problems


def test_shown_values_are_escaped() -> None:
    """Foreign names are text, in HTML and for rich."""

    class Strange(Shown):
        def table(self) -> ShownTable:
            return ShownTable("<b>[red]", ("<i>",), [("<script>",), ("[bold]x",)], ("<u>",))

    html = Strange()._repr_html_()
    assert not {"<b>", "<i>", "<script>", "<u>"} & {
        html[at : html.index(">", at) + 1] for at in range(len(html)) if html[at] == "<"
    }
    stream = io.StringIO()
    Console(file=stream, width=200).print(Strange())
    assert all(text in stream.getvalue() for text in ("<script>", "[bold]x", "[red]"))

"""What users give and take from Python: frames, sizes and kernels of other packages' forms, pickles, and types."""

from __future__ import annotations

import copy
import pickle  # noqa: TID251 - users pickle what ckh returns
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import ckh
from ckh.api.keywords import BenchKeywords, TrainKeywords
from ckh.bench.devices.device import DeviceOptions
from ckh.bench.supervision.limits import BenchLimits
from ckh.data.settings import Settings
from ckh.training import TrainOptions, TreeParams
from tests.refusals import expect_refusal

NAME = "gemm_fp16_rcr_mem_default_interwave_False_False_False_False_64x64x64_4x1x1_16x16x16"
ROWS: list[dict[str, Any]] = [
    {"kernel": NAME, "m": m, "n": 1024, "k": 1024, "latency_us": us} for m, us in ((1024, 11.088), (512, 7.5))
]
COLUMNS: dict[str, list[Any]] = {name: [row[name] for row in ROWS] for name in ROWS[0]}
SHIPPED = ckh.shipped_data() / "amd-gfx950-conv-20kernels.parquet"


class Stream:
    """A frame of another package: it only exports itself by Arrow's C stream."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def _pickled(made: Any) -> Any:
    return pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes


def _of(frame: Any) -> ckh.Dataset:
    return ckh.Dataset.from_frame(frame, op="gemm_universal", arch="gfx942")


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(COLUMNS, index=[7, 7]),
        pa.table(COLUMNS),
        Stream(pa.table({**COLUMNS, "kernel": pa.array(COLUMNS["kernel"], pa.large_string())})),
        COLUMNS,
        {name: np.array(column) for name, column in COLUMNS.items()},
        ROWS,
    ],
    ids=["pandas", "arrow", "stream", "dict", "arrays", "rows"],
)
def test_frames_of_all_kinds_are_the_same_dataset(frame: Any) -> None:
    """Rows, and times by hand (2·M·N·K / 11.088 µs = 193.7 TFLOPS)."""
    dataset = _of(frame)
    assert dataset.frame["latency_ms"].tolist() == pytest.approx([0.011088, 0.0075], rel=1e-12)
    assert dataset.frame["tflops"][0] == pytest.approx(2 * 1024**3 / 11.088e-6 / 1e12, rel=1e-9)
    expected = _of(pd.DataFrame(ROWS)).frame.drop(columns="run_id")  # which is of the bytes as they were given
    pd.testing.assert_frame_equal(dataset.frame.drop(columns="run_id"), expected)


def test_frames_of_polars() -> None:
    """Strings as polars has them; and a dataset becomes a frame of polars."""
    polars = pytest.importorskip("polars", reason="polars is absent: pip install polars")
    dataset = _of(polars.DataFrame(ROWS))
    assert dataset.frame["latency_ms"].tolist() == pytest.approx([0.011088, 0.0075], rel=1e-12)
    assert polars.DataFrame(dataset)["m"].to_list() == [1024, 512]


@pytest.mark.parametrize("frame", [3, "rows", None, [1, 2], {"kernel": 3}, [{"kernel": object()}]])
def test_what_is_no_frame_is_refused(frame: Any) -> None:
    """Each by an error of ckh."""
    with pytest.raises(ckh.CkhError) as caught:
        _of(frame)
    assert caught.value.code in ("wrong-type", "unreadable", "missing-columns")


def test_datasets_are_put_together_and_exported() -> None:
    """Rows, sources and kernels of both; a pair that occurs twice is refused."""
    first, second = _of(ROWS[:1]), _of(ROWS[1:])
    both = ckh.Dataset.concat(first, second)
    assert both.frame["m"].tolist() == [1024, 512]
    assert len(both.metadata["sources"]) == 2
    assert pa.table(both)["latency_ms"].to_pylist() == pytest.approx([0.011088, 0.0075], rel=1e-12)
    with expect_refusal(ckh.DataError, "duplicate-rows"):
        ckh.Dataset.concat(first, first)
    with expect_refusal(ckh.DataError, "missing-option"):
        ckh.Dataset.concat()


def test_sizes_are_integers_of_any_package() -> None:
    """NumPy's integers are sizes; fractions are refused."""
    assert ckh.problem(m=np.int64(128), n=np.uint8(128), k=np.int32(64)) == ckh.problem(m=128, n=128, k=64)
    assert ckh.GemmProblem(np.int64(8), 8, 8) == ckh.GemmProblem(8, 8, 8)
    with expect_refusal(ckh.UsageError, "bad-number"):
        ckh.problem(m=np.float64(8.5), n=8, k=8)


def test_errors_name_arguments_as_python_does() -> None:
    """Not options of the command, in functions and packages that are called; functions are pickled by their names."""
    with pytest.raises(ckh.UsageError, match=r"^grouped_conv has no pad_h$") as caught:
        ckh.problem(c=64, pad_h=1)
    assert caught.value.args == (caught.value.message,)
    with pytest.raises(ckh.UsageError, match=r"^folds 2 are too few"):
        ckh.train(SHIPPED, "nowhere", folds=2)
    assert _pickled(ckh.rank) is ckh.rank


def test_slices_of_an_answer_are_answers() -> None:
    """With their table; a single item is a kernel."""
    ranked = ckh.rank(ckh.problem(n=16, c=256), arch="gfx950")
    assert ranked[:2].to_frame()["kernel"].tolist() == [ranked[0].name, ranked[1].name]
    assert ranked[::-1][0] == ranked[-1]


@pytest.mark.parametrize("again", [_pickled, copy.copy, copy.deepcopy])
def test_models_are_pickled_and_copied(again: Any) -> None:
    """The copy ranks the same; a model of some kernels is not confused with the whole one."""
    path = Path(ckh.__file__).parents[1] / "models" / "grouped_conv_forward_bf16_gfx950"
    model, problem = ckh.load_model(path), ckh.problem(n=16, c=256)
    same = again(model)
    assert same is not model
    assert ckh.rank(problem, 5, same) == ckh.rank(problem, 5, model)
    few = ckh.rank(problem, kernels=[ckh.rank(problem, 5, model)[3].kernel], model=model)
    assert (len(few), len(ckh.rank(problem, 5, model))) == (1, 5)


@pytest.mark.parametrize(
    ("keywords", "groups", "own"),
    [
        (BenchKeywords, (Settings, BenchLimits, DeviceOptions), {"problems", "kernels"}),
        (TrainKeywords, (TrainOptions, TreeParams), {"targets", "params"}),
    ],
)
def test_keywords_are_the_fields_of_the_options(keywords: Any, groups: tuple[Any, ...], own: set[str]) -> None:
    """All of them, with their types, but for those that are arguments of the function itself."""
    names = {field.name: field.type for group in groups for field in fields(group) if field.name not in own}
    typed = {name: hint.__forward_arg__ for name, hint in keywords.__annotations__.items()}
    assert {
        name: kind.removesuffix(" | str") if name in ("rank", "labels") else kind for name, kind in typed.items()
    } == names
    assert get_type_hints(TrainOptions)["folds"] is int


_TYPED = """
import ckh
tile: int = ckh.rank(ckh.GemmProblem(128, 1536, 7168), top=1)[0].kernel.tile_m
ckh.rank("a problem", 5)[:2].to_frame()
ckh.bench([], "run", samples=3, budget_s=60.0)
ckh.train("data.parquet", "model", folds=3, rank="efficiency")
"""
_WRONG = """
ckh.bench([], "run", nonsense=3)
ckh.train("data.parquet", "model", folds="three")
ckh.rank(ckh.GemmProblem(1, 1, 1))[0].kernel.nonsense
"""


@pytest.mark.slow
def test_calls_are_typed(tmp_path: Path) -> None:
    """The type checker accepts the first calls, and refuses each of the others."""
    script = tmp_path / "script.py"
    script.write_text(_TYPED + _WRONG, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(ckh.__file__).parents[1])
    first = _TYPED.count("\n") + 2
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == [first, first + 1, first + 2], done.stdout

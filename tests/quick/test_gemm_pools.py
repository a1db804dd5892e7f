"""Quick answers for GEMMs on GPUs, from pools of tens of thousands of kernels, equal the full command's."""

from __future__ import annotations

import json
from itertools import islice
from math import nan
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.learn.analytic.completed import Completion
from ckh.quick import scored_pool
from ckh.quick.answer import text_of
from ckh.quick.prepare import prepare
from ckh.quick.store import estimate_path, paths
from ckh.ranking.library import RankedCandidate
from ckh.text.log import written
from tests.bench.codegen.stubs import STUB
from tests.quick.conftest import asked, full

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 6 << 20  # that are prepared for one kind


def random_gemms(seed: int) -> Iterator[str]:
    """Options of GEMMs, many with an M and N that no tile divides."""
    random = Random(seed)
    while True:
        m, n = (random.choice([1, 31, 100, 128, 1000, 4096, random.randint(1, 9000)]) for _ in "mn")
        yield f"--m {m} --n {n} --k {random.choice([16, 64, 1536, 4096, 8 * random.randint(1, 900)])}"


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("options", "few", "basis"),
    [
        ("--arch gfx942", 16, "model"),
        ("--arch gfx950 --dtype fp8", 128, None),
        ("--arch gfx1100 --dtype fp16", 2, "estimate"),
    ],
)
def test_answers_equal_the_full_command(
    options: str, few: int, basis: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight random sizes after the first, as text and JSON, by a model, a model with the estimate, and the estimate."""
    monkeypatch.delenv("CKH_MODELS")
    monkeypatch.setattr(scored_pool, "_FEW", few)
    problems = random_gemms(len(options))
    first = asked(f"{next(problems)} {options}")
    assert prepare(first)
    facts, model = paths(first)
    assert sum(path.stat().st_size for path in (facts, model, estimate_path(model)) if path.exists()) < MOST_BYTES
    for number, problem in enumerate(islice(problems, 8)):
        told = f"{problem} {options} --top {number * number + 1} {['', '--json', '--why'][number % 3]}"
        assert written(text_of(asked(told)) or "") == full(capsys, told)
    document = json.loads(full(capsys, f"{next(problems)} {options} --json"))
    assert document["candidates"] > (1000 if basis == "estimate" else 10_000)
    assert (document["not_measured"] or {}).get("basis") == basis


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
def test_kernels_missing_in_headers_rank_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With headers that lack matrix instructions the first and the unsupported rows equal the full command's."""
    monkeypatch.delenv("CKH_MODELS")
    monkeypatch.setenv("CK_TILE_INCLUDE", str(STUB))
    kind = "--arch gfx90a --dtype fp16 --m 100 --k 512"
    assert prepare(asked(f"{kind} --n 64"))
    for line in (f"{kind} --n 1000 --top 4 --why", f"{kind} --n 1000 --top 900 --json"):
        assert written(text_of(asked(line)) or "") == full(capsys, line)
    rows = json.loads(full(capsys, f"{kind} --n 1000 --top 900 --json"))["kernels"]
    lacking = [bool(row["not_in_headers"]) for row in rows]
    assert lacking == sorted(lacking)
    assert {False, True} == set(lacking)


@pytest.mark.usefixtures("alone")
def test_reasons_are_counted_as_by_the_full_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Reasons of equally many kernels too: in the order of the first kernel of each."""
    monkeypatch.delenv("CKH_MODELS")
    kind = "--op gemm_preshuffle --arch gfx950 --m 12 --k 1152 --json"
    assert prepare(asked(f"{kind} --n 64"))
    expected = full(capsys, f"{kind} --n 576")
    assert text_of(asked(f"{kind} --n 576")) == expected
    counts = list(json.loads(expected)["refused"].values())
    assert len(set(counts)) < len(counts)


def test_rows_have_all_kernels_that_may_tie_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """More are ranked if one that was left out may score as much as the first row: as such, or by its tie breaker."""
    monkeypatch.setattr(scored_pool, "_FEW", 2)
    pool: Any = object.__new__(scored_pool.ScoredPool)
    pool.facts, pool._shape_of = {"pool": 3, "shapes": 3, "key": ()}, [0, 1, 2]
    pool._scores = lambda _model, _sizes, _count: [1.0, 2.0, 3.0]
    pool._told = SimpleNamespace(kind=lambda _kernel: SimpleNamespace(lack=-1))
    pool._model = SimpleNamespace(
        rank=lambda _key, _sizes, most: (3, [RankedCandidate(kernel, 1.0, nan, nan) for kernel in range(most)])
    )
    for completion, estimate, expected in ((None, None, [0, 1, 2]), (Completion.TIE_BROKEN, object(), [2, 1, 0])):
        pool._completion, pool._estimate = completion, estimate
        assert [candidate.kernel for candidate in pool._first((), 1)] == expected

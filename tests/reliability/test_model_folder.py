"""Untrusted model folders: each file is read within limits, and a damaged one is reported in one line that names it."""

from __future__ import annotations

import gzip
import json
import shutil
import tracemalloc
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from ckh import cli
from ckh.errors import ExitCode, ModelError
from ckh.files.paths import data_dir
from ckh.files.untrusted import MIB
from ckh.learn.answers.ranking import ranking_of
from ckh.learn.models.artifact import list_models, load_model
from ckh.learn.models.manifest import labels_of, problem_count, trained_problems
from ckh.learn.training.warm_start import read_start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# A problem outside of the measured range, so that all files of the folder are read.
CONV = "conv_forward_bf16_nhwgc_2d_n9999_c256_k256_g1_i28x28_f3x3_s1x1_p1x1_d1x1"
GEMM = "gemm_fp8_rcr_m128_n1536_k7168_splitk1"
FOLDERS = {"grouped_conv_forward_bf16_gfx950": CONV, "gemm_universal_fp8_gfx950": GEMM}
FILES = [(folder, path.name) for folder in FOLDERS for path in sorted((data_dir("models") / folder).iterdir())]
MOST_BYTES = 256 * MIB


def _wide(count: int) -> bytes:
    """A list of many small objects."""
    return b"[" + b",".join([b'{"a":[0]}'] * count) + b"]"


# Small files that would take hundreds of megabytes if read without limits.
BOMBS: dict[str, Callable[[], bytes]] = {
    "objects": lambda: _wide(5_000_000),
    "a field of objects": lambda: b'{"version": 1, "op_type": ' + _wide(4_000_000) + b"}",
    "depth": lambda: b"[" * 10_000_000,
    "fields": lambda: b"{" + b",".join(b'"%x":0' % number for number in range(4_000_000)) + b"}",
    "trees": lambda: b"tree\nfeature_names=a\n" + b"\nTree=0\n" * 5_000_000 + b"end of trees\n",
    "lines": lambda: (
        b"tree\n" + b"".join(b"%x=\n" % number for number in range(4_000_000)) + b"\nTree=0\nend of trees\n"
    ),
    "inputs": lambda: b"tree\nfeature_names=" + b"abc " * 10_000_000 + b"\nTree=0\nend of trees\n",
    "leaves": lambda: b"tree\nfeature_names=a\n\nTree=0\nleaf_value=" + b"12 " * 10_000_000 + b"\n\nend of trees\n",
}


@cache
def _bomb(name: str, *, packed: bool) -> bytes:
    content = BOMBS[name]()
    return gzip.compress(content, 1) if packed else content[: 16 * MIB]


def _copied(tmp_path: Path, folder: str) -> Path:
    made = tmp_path / folder
    shutil.copytree(data_dir("models") / folder, made)
    return made


def _use(folder: Path, text: str) -> None:
    """Read all of a model's folder: for ranking, for caveats, and for continuing its training."""
    model = load_model(folder)
    if text:
        problem = model.spec.op.problems.parse(text)
        ranking = ranking_of(problem, model)
        assert ranking.known(3).document()
        assert ranking.answer(5, "").caveats
    read_start(folder)


def _read(folder: Path, file: str) -> Callable[[], object]:
    """The reader of a file of a folder."""
    return lambda: _use(folder, FOLDERS[folder.name])


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "file"), FILES, ids=[f"{folder}-{file}" for folder, file in FILES])
def test_a_bomb_takes_little_memory(folder: str, file: str, tmp_path: Path) -> None:
    """Only a bounded part is held of a file that unpacks to a hundred times its size, or parses to fifty times."""
    made = _copied(tmp_path, folder)
    read = _read(made, file)
    is_text = ".lgbm" in file
    names = ("trees", "lines", "inputs", "leaves") if is_text else ("objects", "a field of objects", "fields", "depth")
    read()
    for name in names:
        (made / file).write_bytes(_bomb(name, packed=file.endswith(".gz")))
        tracemalloc.start()
        with pytest.raises(ModelError) as refused:
            read()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST_BYTES, (name, peak // MIB)
        assert str(made) in refused.value.message


PREDICTED = [(folder, file) for folder, file in FILES if file != "train_manifest.json"]


@pytest.mark.parametrize(("folder", "file"), PREDICTED, ids=[f"{folder}-{file}" for folder, file in PREDICTED])
def test_damage_ends_in_exit_code_4(folder: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command names the damaged file of the folder in one line."""
    made = _copied(tmp_path, folder)
    whole = (made / file).read_bytes()
    if ".lgbm" in file:
        cases = [whole[: len(whole) // 2], b"", b"tree\n"]
    else:
        cases = [whole[: len(whole) // 2], b"", b"[]", b"{}", gzip.compress(b"[[]]")]
    sizes = ["--m", "128", "--n", "1536", "--k", "7168"] if folder.startswith("gemm") else ["--n", "9999", "--c", "256"]
    for content in cases:
        (made / file).write_bytes(content)
        assert cli.run(["predict", "--model", str(made), *sizes]) == ExitCode.BAD_DATA, content[:9]
        error = capsys.readouterr().err.splitlines()[0]
        assert error.startswith("error: ")
        assert str(made) in error


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"ckh": 1}', b'{"ckh": {"labels": 1}}', b'{"ckh": {"problems": [[]]}}']
)
def test_a_damaged_manifest_is_refused(content: bytes, tmp_path: Path) -> None:
    """It is refused by users of its training data and problems. Models that are only ordered by it are kept."""
    (tmp_path / "train_manifest.json").write_bytes(content)
    assert problem_count(tmp_path) == 0
    with pytest.raises(ModelError, match=r"train_manifest\.json"):
        labels_of(tmp_path), trained_problems(tmp_path)


def test_inconsistent_values_are_refused(tmp_path: Path) -> None:
    """Unknown fields, zero divisors, rows of other lengths, and invalid numbers."""
    conv = _copied(tmp_path, "grouped_conv_forward_bf16_gfx950")
    wrong: list[tuple[Path, str, Any]] = [
        (conv / "kernels.json", "tiles[0]", {"tiles": [[16]], "variants": []}),
        (conv / "kernels.json", "variants[0]", {"tiles": [], "variants": [["compv3"]]}),
        (conv / "kernels.json", "other", {"tiles": [], "variants": [], "other": 1}),
        (conv / "calibration.json", "scale", _with(conv / "calibration.json", scale=float("nan"))),
        (conv / "calibration.json", "scale", _with(conv / "calibration.json", scale=1e300)),
        (conv / "calibration.json", "gap", _with(conv / "calibration.json", gap=[0.0, float("inf")])),
        (conv / "feature_spec.json", "dtype", _with(conv / "feature_spec.json", dtype="fp99")),
        (conv / "feature_spec.json", "params.num_leaves", _with(conv / "feature_spec.json", params={"num_leaves": 1})),
        (
            conv / "feature_spec.json",
            "params.learning_rate",
            _with(conv / "feature_spec.json", params={"learning_rate": float("nan")}),
        ),
    ]
    for path, field, document in wrong:
        whole = path.read_bytes()
        path.write_text(json.dumps(document))
        with pytest.raises(ModelError) as refused:
            _read(path.parent, path.name)()
        path.write_bytes(whole)
        assert str(path) in refused.value.message, field
        assert field in refused.value.message or field == "scale", refused.value.message


@pytest.mark.parametrize("is_damaged", [True, False])
def test_a_damaged_model_among_many_is_skipped_with_one_line(
    is_damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An unnamed model with a damaged spec or without ranking trees is not used; the answer is unchanged."""
    made = _copied(tmp_path, "grouped_conv_forward_bf16_gfx950")
    if is_damaged:
        (made / "feature_spec.json").write_text('{"op_type": "grouped_conv", "arch": "gfx950", "dtype": "')
    else:
        (made / "model_rank.lgbm.gz").unlink()
    monkeypatch.setenv("CKH_MODELS", str(tmp_path))
    assert made not in [list_model.path for list_model in list_models()]
    assert list_models() != []
    lines = [line for line in capsys.readouterr().err.splitlines() if str(made) in line]
    assert len(lines) == 1
    assert lines[0].startswith("warning: ")


def _with(path: Path, **changes: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document | changes

"""Specs are read back as written, and errors are reported."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ckh.errors import ExitCode, ModelError
from ckh.learn.models.spec import ModelSpec, read_spec, spec_text
from ckh.problems import Direction
from tests.learn.conftest import HARDWARE
from tests.refusals import expect_refusal

if TYPE_CHECKING:
    from pathlib import Path

SPEC = ModelSpec(
    op_type="grouped_conv",
    variant=Direction.BWD_WEIGHT,
    dtype="bf16",
    arch="gfx942",
    device="a GPU",
    feature_names=("N", "C", "pipeline"),
    categorical_features=("pipeline",),
    targets=("tflops", "rank"),
    log_targets=("tflops",),
    rank_by="rank",
    hardware=HARDWARE,
    legacy_tiles=False,
)


def write(folder: Path, **changes: Any) -> None:
    """Write the spec with changed values."""
    values = json.loads(spec_text(SPEC, {})) | changes
    kept = {key: value for key, value in values.items() if value is not None}
    (folder / "feature_spec.json").write_text(json.dumps(kept), encoding="utf-8")


def test_a_spec_is_read_back(tmp_path: Path) -> None:
    """Every field is restored; the name of the folder is ignored."""
    folder = tmp_path / "forward"
    folder.mkdir()
    write(folder)
    assert read_spec(folder) == SPEC
    assert SPEC.purpose == "grouped_conv bwd_weight bf16 on gfx942"


def test_a_spec_without_our_key_is_amds(tmp_path: Path) -> None:
    """It ranks by TFLOPS, has AMD's tile names, no device, and a direction only if the folder names one."""
    write(tmp_path, ckh=None)
    spec = read_spec(tmp_path)
    assert (spec.rank_by, spec.legacy_tiles, spec.device, spec.variant) == ("tflops", True, "", None)
    assert spec.purpose == "grouped_conv any direction bf16 on gfx942"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op_type": "pooling"}, "unknown operation 'pooling'"),
        ({"op_type": 3}, "op_type must be of type str, not 3"),
        ({"feature_encoding_version": 1}, "features of encoding version 1, ckh has 0"),
        ({"feature_names": ["N", "moon_phase", "luck"]}, "moon_phase, luck"),
        ({"feature_names": "N"}, "feature_names must be a list of strings, not 'N'"),
        ({"feature_names": ["N", 3]}, "feature_names must be a list of strings, not ['N', 3]"),
        ({"feature_names": None}, "feature_names is missing, expected a list of strings"),
        ({"dtype": 32}, "dtype must be of type str, not 32"),
        ({"arch": None}, "arch is missing, expected a value of type str"),
        ({"targets": {"tflops": 1}}, "targets must be a list of strings, not {"),
        ({"targets": ["tflops"]}, "ranks by 'rank', which is not among its targets tflops"),
        ({"targets": ["latency"], "ckh": None}, "ranks by 'tflops', which is not among its targets latency"),
        ({"hardware": {"num_cus": "many"}}, "hardware.num_cus must be of type int, not 'many'"),
        ({"hardware": {"num_cus": True}}, "hardware.num_cus must be of type int, not True"),
        ({"hardware": {"num_cus": -1}}, "hardware must be whole numbers"),
        ({"ckh": {}}, "ckh.variant is missing, expected a value of type str"),
        ({"ckh": {"variant": "sideways"}}, "ckh.variant must be one of forward, bwd_data, bwd_weight, not 'sideways'"),
        ({"targets": None}, "targets is missing, expected a list of strings"),
        ({"log_targets": None}, "log_targets is missing, expected a list of strings"),
        ({"categorical_features": None}, "categorical_features is missing, expected a list of strings"),
        ({"ckh": "yes"}, "ckh must be an object"),
    ],
)
def test_errors_of_a_spec_are_reported(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Missing, impossible and unsupported values are model errors, in one line."""
    write(tmp_path, **changes)
    with pytest.raises(ModelError) as error:
        read_spec(tmp_path)
    assert message in error.value.message
    assert "\n" not in error.value.message
    assert error.value.exit_code == ExitCode.BAD_DATA


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "feature_spec.json:1: not JSON"),
        (b"{", "feature_spec.json:1: not JSON"),
        (b"\xff\xfe{}", "not a text file in UTF-8"),
        (b"[]", "the file must be an object"),
        (b"null", "the file must be an object"),
        (b"3", "the file must be an object"),
        (b"{}", "op_type is missing, expected a value of type str"),
    ],
)
def test_a_file_that_is_not_a_spec_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    """Invalid JSON, and JSON of another structure."""
    (tmp_path / "feature_spec.json").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        read_spec(tmp_path)


def test_the_estimates_part_is_read_back(tmp_path: Path) -> None:
    """Versions of ckh without such models refuse the ranking target, and a GPU without peak rates has no estimate."""
    spec = replace(SPEC, estimate=True)
    document = json.loads(spec_text(spec, {}))
    assert document["ckh"]["rank_by"] == "estimate+rank"
    path = tmp_path / "feature_spec.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert read_spec(tmp_path) == spec
    path.write_text(json.dumps(document | {"arch": "host"}), encoding="utf-8")
    with expect_refusal(ModelError, "bad-field", "none of grouped_conv on host"):
        read_spec(tmp_path)
    document["ckh"]["rank_by"] = "rank+estimate"  # of earlier versions
    path.write_text(json.dumps(document), encoding="utf-8")
    with expect_refusal(ModelError, "bad-field", "rank+estimate"):
        read_spec(tmp_path)

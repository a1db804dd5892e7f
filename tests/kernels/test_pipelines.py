"""The table of pipelines compared with AMD's numbers and with ckh's C++ templates."""

from __future__ import annotations

import re
from pathlib import Path

from ckh import ops
from ckh.archs import arch_names, load_arch
from ckh.bench.codegen import ck_tile
from ckh.bench.codegen import unit as host
from ckh.bench.codegen.ck_tile import Interface
from ckh.errors import UsageError
from ckh.kernels.declaration import PIPELINE
from ckh.kernels.pipelines import (
    CONV_PIPELINES,
    PIPELINE_CODES,
    PIPELINES,
    TABLE_PIPELINES,
    wave_group_reason,
)
from ckh.ops import operation
from ckh.ops.gemm_universal.measuring import hip_rules as ck_tile_gemm_rules
from tests.bench.codegen.templates import OPERATIONS, SHARED
from tests.refusals import expect_refusal, expect_values

FOLDERS = (SHARED, *OPERATIONS.values())


def header(name: str) -> Path:
    """One of ckh's headers for CK Tile."""
    (path,) = (folder / name for folder in FOLDERS if (folder / name).exists())
    return path


def words(text: str, pattern: str) -> list[str]:
    """The groups matched by a pattern in a text."""
    return re.findall(pattern, text)


HOST_HEADERS = [*host.template_dir().glob("*.hpp"), *Path(ops.__file__).parent.glob("*/templates/host/*.hpp")]
CONVOLUTION_FEATURES = operation("grouped_conv").training.engine.names


def enumerators(path: Path) -> list[str]:
    """The pipelines of a header's `enum class Pipeline`."""
    (body,) = words(path.read_text(), r"enum class Pipeline \{([^}]*)\}")
    return [word.strip() for word in body.split(",")]


def specialized(*names: str) -> set[str]:
    """The pipelines that templates of CK Tile's headers are specialized for."""
    return {word for name in names for word in words(header(name).read_text(), r"struct \w+<Pipeline::(\w+)")}


def test_codes_match_amd() -> None:
    """They are the numbers of AMD's feature engines, which its models were trained on."""
    assert list(PIPELINE_CODES.items()) == [
        ("compv3", 0),
        ("compv4", 1),
        ("compv5", 2),
        ("mem", 3),
        ("preshufflev2", 4),
        ("basic_v1", 5),
        ("compv6", 6),
    ]


def test_every_pipeline_has_a_name_and_a_table_row() -> None:
    """Every row can be named by a kernel, and every pipeline of an architecture has a row."""
    assert all(PIPELINE.fullmatch(name) for name in PIPELINES)
    for name in arch_names():
        assert set(load_arch(name).pipelines) <= PIPELINES.keys()


def test_the_host_has_every_pipeline_of_the_table() -> None:
    """All are distinct there, and templates read every constant of the sources."""
    stated = {name: host.staging_constants(name) for name in TABLE_PIPELINES}
    assert len({tuple(item.values()) for item in stated.values()}) == len(TABLE_PIPELINES)
    read = {word for path in HOST_HEADERS for word in words(path.read_text(), r"kernel::(\w+)")}
    assert all(constants.keys() <= read for constants in stated.values())
    with expect_refusal(UsageError, "unknown-name", "host", "comp_async"):
        host.staging_constants("comp_async")


def test_pipelines_of_features_are_in_the_table() -> None:
    """Otherwise a feature such as `is_compv3` would always be 0 after a pipeline is renamed."""
    columns = {name for name in PIPELINES if f"is_{name}" in CONVOLUTION_FEATURES}
    assert columns == {"compv3", "compv4", "compv5", "compv6", "mem"}


def test_ck_tiles_vocabularies_have_the_pipelines_with_a_header() -> None:
    """Convolutions may have all of them, GEMMs those of the table and comp_async."""
    assert enumerators(header("vocabulary.hpp")) == list(CONV_PIPELINES) == list(ck_tile.PIPELINE_HEADERS)
    assert enumerators(header("gemm_words.hpp")) == [*TABLE_PIPELINES, "comp_async"]


def test_emitted_pipelines_match_the_template_specializations() -> None:
    """Every emitted pipeline has a template, and every template is used."""
    emitted = ck_tile_gemm_rules.EMITTED
    assert specialized("looped_pipelines.hpp") == emitted[Interface.LATE_2025] > emitted[Interface.MID_2025]
    assert specialized("current_pipelines.hpp") == emitted[Interface.CURRENT] | {"compv5"}
    assert specialized("current_pipelines.hpp") | specialized("current.hpp") == set(CONV_PIPELINES)


def test_only_compv5_iterates_over_wave_groups() -> None:
    """It needs two, 1x1x2, as in the GEMM template; the others compute wrong results with two."""
    (groups,) = words(header("gemm_widths.hpp").read_text(), r"Pipeline::compv5 \? (\d+) : 1")
    stated = {name: str(row.wave_groups) for name, row in PIPELINES.items() if row.wave_groups}
    assert list(stated) == ["compv5"]
    expect_values(stated["compv5"], "1x1x2", groups)
    assert wave_group_reason("compv5", (1, 1, 2)) == wave_group_reason("compv5", (1, 1, 2), 2) == ""
    assert wave_group_reason("mem", (4, 1, 1)) == wave_group_reason("mem", (4, 1, 1), 1) == ""
    assert all((wave_group_reason("compv5", (1, 1, 2), 1), wave_group_reason("compv5", (4, 1, 1))))
    assert wave_group_reason("mem", (4, 1, 1), 2)

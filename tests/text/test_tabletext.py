"""Tables that fit: wrapping and shortening, and complete output with --wide."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ckh.cli import run
from ckh.data.dataset import write_dataset
from ckh.errors import ExitCode
from ckh.text.prose import paragraphs, prose, shell_word, whole_names
from ckh.text.tabletext import shortened, sparkline, table_text
from tests.learn.conftest import measured, saved, silent

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = [f"grouped_conv_fwd_fp32_nhwgc_2d_compv{v}_cshuffle_intrawave_128x64x128_8x2x1_16x16x32" for v in (3, 4, 6)]
ROWS = [[str(i), "0.2191", "67.54", name] for i, name in enumerate(KERNELS, 1)]
COLUMNS = ("", "predicted TFLOPS", "predicted ms", "kernel")


@pytest.mark.usefixtures("narrow")
def test_a_table_fits_80_columns() -> None:
    """Headings wrap first, then names are cut in the middle, and stay distinct."""
    lines = table_text("", COLUMNS, ROWS).splitlines()
    assert max(map(len, lines)) == 80
    assert lines[:2] == ["   predicted  predicted", "      TFLOPS         ms" + " " * 51 + "kernel"]
    names = [line.split()[-1] for line in lines[3:6]]
    assert [re.search(r"v(\d)_cshuffle", name)[1] for name in names] == ["3", "4", "6"]  # type: ignore[index]
    assert lines[-1] == "(--wide shows names whole)"


@pytest.mark.usefixtures("narrow")
def test_wide_tables_cut_nothing() -> None:
    """A wide table has its full width, and later tables fit again."""
    with whole_names(is_whole=True):
        text = table_text("", COLUMNS, ROWS)
    assert all(name in text for name in KERNELS)
    assert "predicted TFLOPS" in text
    assert max(map(len, table_text("", COLUMNS, ROWS).splitlines())) == 80


@pytest.mark.usefixtures("narrow")
def test_sentences_are_wrapped_not_cut() -> None:
    """Every word of a cell with spaces is shown, wrapped; the other cells are on the first line."""
    sentence = "the tiles of A and B take 49152 bytes of LDS, mem with a double smem buffer has 32768 on gfx942"
    lines = table_text("", ("why not", "kernels"), [[sentence, "12"]]).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(line.removesuffix("12").strip() for line in lines[2:]) == sentence
    assert lines[2].endswith(" 12")


@pytest.mark.usefixtures("narrow")
def test_column_gaps_shrink_before_names_wrap() -> None:
    """A table that fits with single spaces has one line per row; shortened names keep two spaces."""
    words = ["best single kernel", *["96.32%"] * 8]
    assert table_text("", ["", *map(str, range(8))], [words]).splitlines()[-1] == " ".join(words)
    assert "  grou" in table_text("", COLUMNS, ROWS)


def test_the_width_follows_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS, set by shells, is the width; a wide terminal shows everything."""
    for columns, is_whole in (("60", False), ("200", True)):
        monkeypatch.setenv("COLUMNS", columns)
        text = table_text("", COLUMNS, ROWS)
        assert max(map(len, text.splitlines())) <= int(columns)
        assert (KERNELS[0] in text) == is_whole


@pytest.mark.parametrize("names", [["abcdefghij_x", "abcdefghij_y"], ["x_abcdefghij", "y_abcdefghij"], KERNELS])
def test_shortened_names_stay_distinct(names: list[str]) -> None:
    """The cut is where the names do not differ."""
    for width in (9, 10, 12):
        cut = shortened(names, width)
        assert all(len(name) <= width for name in cut)
        if names is not KERNELS:
            assert len(set(cut)) == len(names)
    assert shortened(["short"], 9) == ["short"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and data in which each pair was measured twice."""
    made = tmp_path_factory.mktemp("t")
    silent(saved(made / "model"))
    data = measured()
    twice = data.frame.assign(earlier_ms=data.frame["latency_ms"], later_ms=1.2 * data.frame["latency_ms"])
    write_dataset(replace(data, frame=twice), made / "data.parquet")
    (made / "list.txt").write_text("\n".join(problem.canonical() for problem in data.problems()[:3]) + "\n")
    return made


_BENCH = "bench --device host --problems small.txt --kernels sample:1 --out run"
_LOOSE = "--fail-under mean_efficiency=0 --fail-under p10_efficiency=0"
_SEARCHED = "--model model --c 16 --hi 7"
_MEASURED = "conv_forward_fp32_nhwgc_2d_n1_c16_k16_g1_i7x7_f3x3_s1x1_p1x1_d1x1 --model model --evaluations 1"


@pytest.mark.slow
@pytest.mark.parametrize(
    "commands",
    [
        ["doctor"],
        ["predict --model model --c 64 --why --explain", "predict --problems list.txt --model model"],
        ["evaluate --model model --data data.parquet --with-trained --worst 2"],
        [f"validate oracle --model model --data data.parquet --min-problems 2 {_LOOSE}"],
        ["validate compare model model --data data.parquet --among measured"],
        [
            "validate selection golden.json --create --problems list.txt --model model",
            "validate selection golden.json --model model",
        ],
        ["train data.parquet --out learned --trees 3 --leaves 4 --folds 3", "export --model model --to c --out c"],
        [f"{_BENCH} --dry-run", _BENCH, "convert run --out converted.parquet"],
        [f"search {_SEARCHED}", f"search measure {_MEASURED} --out found", "report data.parquet --out page.html"],
    ],
    ids=lambda commands: commands[0][:16].strip(),
)
def test_commands_print_lines_that_fit(
    commands: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], narrow: None
) -> None:
    """No line of a typical answer exceeds 80 columns except a whole name; --wide shortens nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr("ckh.search.measuring.SPACE_LIMIT", 300)
        for name in ("model", "data.parquet", "list.txt"):
            (tmp_path / name).symlink_to(folder / name)
        (tmp_path / "small.txt").write_text("conv_forward_fp32_nhwgc_2d_n1_c16_k16_g1_i7x7_f3x3_s1x1_p1x1_d1x1\n")
        for command in commands:
            assert run(command.split()) == ExitCode.OK, command
            lines = capsys.readouterr().out.splitlines()
            assert lines or "--create" in command
            # A name in a sentence is a line of its own, behind a word at most, and stays whole.
            assert not [line for line in lines if len(line) > 80 and len(line.split()) > 2], command
        if len(commands) == 1:
            assert run([*commands[0].replace("--out ", "--force --out ").split(), "--wide"]) == ExitCode.OK
            assert "…" not in capsys.readouterr().out


@pytest.mark.usefixtures("narrow")
def test_long_commands_continue_with_a_backslash() -> None:
    """A wrapped command is the same for a shell; a short one is unchanged."""
    command = "ckh bench --op gemm_universal --problems 'a b' --out runs/x && ckh convert runs/x --out x.parquet"
    lines = paragraphs(f"next: {command}").split("\n")
    assert max(map(len, lines)) <= 80
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert "".join(line.removesuffix("\\") for line in lines).split() == ["next:", *command.split()]
    assert paragraphs("next: ckh doctor") == "next: ckh doctor"


@pytest.mark.parametrize(
    "name", [b"plain/data.parquet", b"a b", b"$(c) `d`", b"it's", b"\xe9\xe90 '1.parquet", "größe".encode(), b"\n\t\\"]
)
def test_names_in_commands_are_quoted_for_the_shell(name: bytes) -> None:
    """A printed command names a path of any bytes, in printable characters."""
    word = shell_word(os.fsdecode(name))
    assert word.isprintable()
    assert subprocess.run(["/bin/bash", "-c", f"printf %s {word}"], capture_output=True, check=True).stdout == name
    assert len(prose(f"ckh train {word}").splitlines()) == 1


def test_a_sparkline_has_a_bar_for_each_value() -> None:
    """From minimum to maximum, or between given ends, at which other values are clipped."""
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5]) == "▁▁"
    assert sparkline([0, 1], 0, 2) == "▁▅"
    assert sparkline([-1, 9], 0, 2) == "▁█"
    assert sparkline([]) == ""


@pytest.mark.usefixtures("narrow")
def test_prose_wraps_without_breaking_names() -> None:
    """Lines end before column 80, further ones are indented; a long name has its own line; --wide has one line."""
    name = "conv_forward_fp32_nhwgc_2d_n16_c256_k256_g1_i28x28_f3x3_s1x1_p1x1_d1x1_and_more_of_it_still"
    text = "worth    " + "some words and others " * 10 + name + " and the end"
    lines = prose(text, 9).split("\n")
    assert max(map(len, lines[:3])) <= 80
    assert all(line.startswith(" " * 9) for line in lines[1:])
    assert lines[0].startswith("worth    some")
    assert f"{' ' * 9}{name}" in lines
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    with whole_names(is_whole=True):
        assert prose(text, 9) == text
    assert prose("short") == "short"

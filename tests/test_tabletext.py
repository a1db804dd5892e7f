"""Tables that fit: what is wrapped, what is shortened, and that nothing is lost with --wide."""

from __future__ import annotations

import re

import pytest

from ckh.cli import COMMANDS, build_app, run
from ckh.data.dataset import write_dataset
from ckh.errors import ExitCode
from ckh.tabletext import prose, shortened, sparkline, table_text, whole_names
from tests.learn.conftest import measured, saved
from tests.test_docs import options_of

KERNELS = [f"grouped_conv_fwd_fp32_nhwgc_2d_compv{v}_cshuffle_intrawave_128x64x128_8x2x1_16x16x32" for v in (3, 4, 6)]
ROWS = [[str(i), "0.2191", "67.54", name] for i, name in enumerate(KERNELS, 1)]
COLUMNS = ("", "predicted TFLOPS", "predicted ms", "kernel")


@pytest.mark.usefixtures("narrow")
def test_a_table_fits_80_columns() -> None:
    """Heads take lines first, then names are cut in the middle, and what differs is still there."""
    lines = table_text("", COLUMNS, ROWS).splitlines()
    assert max(map(len, lines)) == 80
    assert lines[:2] == ["   predicted  predicted", "      TFLOPS         ms" + " " * 51 + "kernel"]
    names = [line.split()[-1] for line in lines[3:6]]
    assert [re.search(r"v(\d)_cshuffle", name)[1] for name in names] == ["3", "4", "6"]  # type: ignore[index]
    assert lines[-1] == "(--wide shows names whole)"


@pytest.mark.usefixtures("narrow")
def test_wide_cuts_nothing() -> None:
    """A table is as wide as it is, and after it others fit again."""
    with whole_names(is_whole=True):
        text = table_text("", COLUMNS, ROWS)
    assert all(name in text for name in KERNELS)
    assert "predicted TFLOPS" in text
    assert max(map(len, table_text("", COLUMNS, ROWS).splitlines())) == 80


@pytest.mark.usefixtures("narrow")
def test_sentences_are_wrapped_not_cut() -> None:
    """Every word of a cell with spaces is shown, in lines; the other cells stand in the first."""
    sentence = "the tiles of A and B take 49152 bytes of LDS, mem with a double smem buffer has 32768 on gfx942"
    lines = table_text("", ("why not", "kernels"), [[sentence, "12"]]).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(line.removesuffix("12").strip() for line in lines[2:]) == sentence
    assert lines[2].endswith(" 12")


def test_the_terminal_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS, which shells set, is the width; a terminal that is wide enough shows all."""
    for columns, is_whole in (("60", False), ("200", True)):
        monkeypatch.setenv("COLUMNS", columns)
        text = table_text("", COLUMNS, ROWS)
        assert max(map(len, text.splitlines())) <= int(columns)
        assert (KERNELS[0] in text) == is_whole


@pytest.mark.parametrize("names", [["abcdefghij_x", "abcdefghij_y"], ["x_abcdefghij", "y_abcdefghij"], KERNELS])
def test_shortened_names_stay_apart(names: list[str]) -> None:
    """Wherever they differ, the cut is elsewhere."""
    for width in (9, 10, 12):
        cut = shortened(names, width)
        assert all(len(name) <= width for name in cut)
        if names is not KERNELS:
            assert len(set(cut)) == len(names)
    assert shortened(["short"], 9) == ["short"]


_COMMANDS = ("measure them again: ", "         conv_")  # to copy, or names


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "validate"])
def test_every_command_has_it(command: str) -> None:
    """--wide is an option of each command, and of each command of `validate`."""
    assert "--wide" in options_of(command)
    for name in ("oracle", "compare", "selection", "kernels"):
        assert "--wide" in options_of("validate", name)
    assert build_app([command])


@pytest.mark.usefixtures("narrow")
def test_commands_print_tables_that_fit(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of what evaluate, predict and compare print are no wider than 80, and whole with --wide."""
    folder = tmp_path_factory.mktemp("t")
    model, data = str(saved(folder / "model")), str(folder / "data.parquet")
    write_dataset(measured(), data)
    calls = [
        ["evaluate", "--model", model, "--data", data, "--with-trained", "--worst", "2"],
        ["predict", "--model", model, "--c", "64"],
    ]
    for call in calls:
        assert run(call) == ExitCode.OK
        lines = capsys.readouterr().out.splitlines()
        tables = [line for line in lines if re.search(r"\S {2,}\S", line) and not line.startswith(("problem", "model"))]
        assert len(tables) > 5
        assert max(map(len, tables)) <= 80
        assert max(len(line) for line in lines if " " in line.strip() and not line.startswith(_COMMANDS)) <= 80
        assert run([*call, "--wide"]) == ExitCode.OK
        assert "…" not in capsys.readouterr().out


def test_a_sparkline_has_a_bar_for_each_value() -> None:
    """From the least to the largest, or between given ends, beyond which bars are the least and the fullest."""
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([5, 5]) == "▁▁"
    assert sparkline([0, 1], 0, 2) == "▁▅"
    assert sparkline([-1, 9], 0, 2) == "▁█"
    assert sparkline([]) == ""


@pytest.mark.usefixtures("narrow")
def test_prose_takes_lines_and_leaves_names_whole() -> None:
    """Lines end before column 80, further ones are indented; a long name is a line of its own; --wide has one line."""
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

"""`ckh explain`: functions, one iteration, stalls, and invalid files."""

from __future__ import annotations

import json
import os
import re
import shlex
import struct
from pathlib import Path
from typing import Any

import pytest

import ckh
from ckh.cli import run
from ckh.emulator.codeobject import BUNDLE_MAGIC
from ckh.errors import DataError, ExitCode
from ckh.isa import codefile
from ckh.isa.codefile import CodeFile, read_code
from ckh.isa.describe import Asked, anatomy_of
from ckh.ops import operation
from ckh.ops.grouped_conv.problem import ConvProblem
from ckh.problems import Direction
from tests.emulator.keep import KEPT
from tests.isa.keep import BACKWARD_DATA, LEAST, MOST, code
from tests.refusals import expect_error, expect_refusal, expect_values

pytestmark = pytest.mark.usefixtures("decoder")
_FLAGS = 48  # where the processor stands in a code object


def _problem(c: int, size: int = 1, more: str = "p0x0") -> str:
    """A forward convolution of 28x28 to 64 channels."""
    return f"conv_forward_bf16_nhwgc_2d_n1_c{c}_k64_g1_i28x28_f{size}x{size}_s1x1_{more}_d1x1"


def _explained(capsys: pytest.CaptureFixture[str], *args: str | Path) -> dict[str, Any]:
    assert run(["explain", *map(str, args), "--json"]) == ExitCode.OK
    return dict(json.loads(capsys.readouterr().out))


def _refused(capsys: pytest.CaptureFixture[str], *args: str | Path) -> tuple[int, str]:
    """The exit code and error code of a one-line error."""
    code = run(["explain", *map(str, args), "--json"])
    return code, str(json.loads(capsys.readouterr().out)["code"])


@pytest.mark.slow
def test_a_kernel_with_little_address_arithmetic(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An iteration of 16x64x64 has 464 clocks of vector ALU and 64 of matrix work, counted by hand, and vmcnt(0)."""
    result = _explained(capsys, LEAST, "--code-object", least)
    trip, (main,) = result["trip"], [item for item in result["functions"] if item["runs"]]
    assert (trip["clocks"]["vector ALU"], trip["clocks"]["matrix"]) == (464, 64)
    assert trip["instructions"]["matrix"] == 4
    assert sum(count for kind, count in trip["instructions"].items() if kind.startswith("vector")) == 90
    # An iteration loads a tile of A and of B once, writes it to LDS, and each of the four waves reads its parts.
    assert trip["loaded_bytes"] == trip["lds_written_bytes"] == (16 + 64) * 64 * 2
    assert trip["lds_read_bytes"] == (4 * 16 + 64) * 64 * 2
    (last,) = [item for item in trip["waits"] if (item["counter"], item["most"]) == ("vmcnt", 0)]
    assert last["awaited"] == last["in_trip"] == 1
    assert (main["resources"]["vgpr_spills"], main["resources"]["scratch_bytes"]) == (0, 0)
    assert "464" in result["advice"]
    assert "vmcnt(0)" in result["advice"]


@pytest.mark.slow
def test_loops_that_do_not_iterate_over_k(backward_data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Backward data's functions for one and two trips have a loop that searches a GEMM, and none over K."""
    functions = _explained(capsys, BACKWARD_DATA, "--code-object", backward_data)["functions"]
    assert [(function["trips"], function["loop_instructions"] > 0) for function in functions] == [
        ("2 and more", True),
        ("1", False),
        ("2", False),
    ]


@pytest.mark.slow
def test_a_kernel_with_much_address_arithmetic(most: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An iteration of 128x64x128 with sixteen waves has 2,432 clocks of vector ALU per SIMD and 512 of matrix work."""
    clocks = _explained(capsys, MOST, "--code-object", most)["trip"]["clocks"]
    assert (clocks["vector ALU"], clocks["matrix"]) == (2432, 512)


@pytest.mark.parametrize(("c", "trips", "loops"), [(64, 1, False), (128, 2, False), (192, 3, True), (640, 10, True)])
def test_iterations_decide_which_function_runs(
    c: int, trips: int, loops: bool, least: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """compv3 has a function for one iteration, for two, and for more."""
    result = _explained(capsys, LEAST, _problem(c), "--code-object", least)
    (main,) = [item for item in result["functions"] if item["runs"]]
    assert (result["trips"], main["loop_instructions"] > 0) == (trips, loops)
    assert sorted(item["trips"] for item in result["functions"]) == ["1", "2", "2 and more"]
    assert (result["trip"] is not None) is loops
    assert result["estimated"]["us"] == pytest.approx(
        result["estimated"]["launch_us"]
        + max(result["estimated"]["trips_us"] + result["estimated"]["ends_us"], result["estimated"]["memory_us"])
    )


def test_python_returns_the_same_document(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ckh.explain` returns what the command prints."""
    problem = ConvProblem(Direction.FORWARD, n=1, c=256, k=64, g=1, hi=28, wi=28, y=1, x=1, dtype="bf16")
    anatomy = ckh.explain(LEAST, problem, code_object=least)
    args = (LEAST, _problem(256), "--code-object", least)
    result = _explained(capsys, *args)
    assert anatomy.trips == result["trips"] == 4
    assert anatomy.trip is not None
    assert dict(anatomy.trip.clocks) == result["trip"]["clocks"]


def test_text_and_document_agree(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has each pipe's clocks, and the functions."""
    assert run(["explain", LEAST, _problem(256, 3, "p1x1"), "--code-object", str(least)]) == ExitCode.OK
    text = capsys.readouterr().out
    assert "464" in text
    assert "2 and more *" in text
    assert "not measured" in text


@pytest.mark.slow
@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept.file)
def test_kept_libraries(kept: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Libraries of all operations, pipelines and GPUs are explained: iterations add up to the tiles' products."""
    library = tmp_path / "kernel.so"
    library.write_bytes(kept.library())
    result, kernel = _explained(capsys, kept.name, "--code-object", library), kept.kernel
    assert result["arch"] == kept.arch
    assert result["kernel"] == kept.name
    if result["trip"] is not None:
        waves = kernel.wave_m * kernel.wave_n * kernel.wave_k
        products = kernel.tile_m * kernel.tile_n * kernel.tile_k
        tile = kernel.warp_tile_m * kernel.warp_tile_n * kernel.warp_tile_k
        # CK makes a warp tile of several instructions where the GPU has none of its K.
        assert result["trip"]["instructions"]["matrix"] % (products / tile / waves) == pytest.approx(0)


@pytest.mark.slow
def test_foreign_machine_code(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a kernel's name functions are described by parts of their names, and the loop body is an iteration."""
    result = _explained(capsys, "GroupedConvolutionForwardKernel", "--code-object", least)
    assert result["trip"]["instructions"]["matrix"] == 4
    assert result["trips"] is None


def test_a_function_without_a_loop(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Functions with neither loop nor matrix instructions have resources and no iteration."""
    result = _explained(capsys, "empty_kernel", "--code-object", least)
    assert result["trip"] is None
    assert [item["instructions"] for item in result["functions"]] == [1]


@pytest.mark.slow
def test_a_function_that_calls_others_is_said_to(
    least: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its call is seen in the code: the body that is called is not in the numbers."""
    assert {item["calls"] for item in _explained(capsys, LEAST, "--code-object", least)["functions"]} == {False}
    code = bytearray(least.read_bytes())
    (function,) = [item for item in read_code(least, "gfx950").functions if item.name == _main_name(capsys, least)]
    nop = function.code.index(bytes.fromhex("000080bf"))
    at = code.index(function.code) + nop
    code[at : at + 4] = bytes.fromhex("041e9ebe")
    calling = tmp_path / "calling.co"
    calling.write_bytes(code)
    result = _explained(capsys, LEAST, "--code-object", calling)
    assert [item["calls"] for item in result["functions"] if item["runs"]] == [True]
    assert run(["explain", LEAST, "--code-object", str(calling)]) == ExitCode.OK
    assert "\ncalls " in capsys.readouterr().out


def _main_name(capsys: pytest.CaptureFixture[str], file: Path) -> str:
    functions = _explained(capsys, LEAST, "--code-object", file)["functions"]
    return str(next(item["name"] for item in functions if item["runs"]))


def _symbols(data: bytes) -> list[tuple[int, str]]:
    """The place of each dynamic symbol in a code object, and its name."""
    (at,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * number) for number in range(count)]
    (table,) = (section for section in sections if section[1] == 11)
    names = sections[table[6]][4]
    places = range(table[4] + 24, table[4] + table[5], 24)  # the first symbol is empty
    starts = [names + struct.unpack_from("<I", data, place)[0] for place in places]
    return [(place, data[at : data.index(b"\0", at)].decode()) for place, at in zip(places, starts, strict=True)]


def _without_sizes(data: bytes) -> bytearray:
    """A code object whose symbols have no sizes, as of hand-written assembly."""
    result = bytearray(data)
    for place, _ in _symbols(data):
        result[place + 16 : place + 24] = bytes(8)
    return result


@pytest.mark.slow
def test_symbols_without_sizes(least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A function of size 0 extends to the next one or to the end of the text: the same instructions and loops."""
    file = tmp_path / "assembly.co"
    file.write_bytes(_without_sizes(least.read_bytes()))
    for name in (LEAST, "empty_kernel"):
        stated, found = (_explained(capsys, name, "--code-object", path) for path in (least, file))
        assert found["functions"] == stated["functions"]
        assert found["trip"] == stated["trip"]


def test_a_function_without_instructions(least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A function of padding alone is an error, not a kernel without a loop."""
    file, data = tmp_path / "assembly.co", _without_sizes(least.read_bytes())
    (entry,) = (function.entry for function in read_code(least, None, ("empty_kernel",)).functions)
    (at,), (count,) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<H", data, 56)
    segments = [struct.unpack_from("<IIQQQQQQ", data, at + 56 * number) for number in range(count)]
    (offset,) = (item[2] - item[3] for item in segments if item[0] == 1 and item[3] <= entry < item[3] + item[5])
    data[entry + offset : entry + offset + 4] = bytes(4)  # its only instruction
    file.write_bytes(data)
    assert _refused(capsys, "empty_kernel", "--code-object", file) == (ExitCode.BAD_DATA, "damaged")


def test_an_unknown_function(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no function has is an error, which lists names that there are."""
    assert run(["explain", "somebody_elses", "--code-object", str(least)]) == ExitCode.USAGE
    expect_error(capsys.readouterr().err, "unknown-name", "somebody_elses", "empty_kernel")


def test_one_table_of_symbols(least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Many sections that share one table are refused at the second: reading is not quadratic (ran for minutes)."""
    data = bytearray(least.read_bytes())
    (at,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    sections = [bytes(data[at + 64 * number : at + 64 * (number + 1)]) for number in range(count)]
    table = next(list(section) for raw in sections if (section := struct.unpack("<IIQQQQIIQQ", raw))[1] == 11)
    symbol = bytes(data[table[4] + 24 : table[4] + 48])
    table[4:6] = len(data), 24 * 20000
    data += symbol * 20000
    struct.pack_into("<Q", data, 40, len(data))
    data += b"".join(sections) + struct.pack("<IIQQQQIIQQ", *table) * 20000
    struct.pack_into("<H", data, 60, count + 20000)
    file = tmp_path / "many.co"
    file.write_bytes(data)
    assert _refused(capsys, LEAST, "--code-object", file) == (ExitCode.BAD_DATA, "damaged")


@pytest.mark.slow
def test_a_persistent_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The loop over tiles of C is said to be there; iterations are those of the innermost loop that multiplies."""
    (kept,) = (item for item in KEPT if item.file == "gemm_persistent")
    library = tmp_path / "kernel.so"
    library.write_bytes(kept.library())
    problem = f"gemm_{kept.kernel.dtype}_ccr_m4096_n4096_k{112 * kept.kernel.tile_k}_splitk1"
    result = _explained(capsys, kept.name, problem, "--code-object", library)
    (main,) = (item for item in result["functions"] if item["runs"])
    assert result["trips"] == 112
    assert main["over_tiles"]
    other = _explained(capsys, LEAST, "--code-object", code(LEAST, tmp_path))
    assert not any(item["over_tiles"] for item in other["functions"])


def test_no_function_runs_the_problem(least: Path) -> None:
    """Where the loop is in a function that is called, the advice says that none here runs the iterations."""
    problem = ConvProblem(Direction.FORWARD, n=1, c=640, k=64, g=1, hi=28, wi=28, y=1, x=1, dtype="bf16")
    op = operation("grouped_conv")
    assert op.problems.tiled is not None
    asked = Asked(LEAST, "", op.kernels.parse(LEAST), problem, op.problems.tiled(problem))
    whole = read_code(least, None, ("GroupedConvolutionForwardKernel",))
    functions = anatomy_of(whole, asked).functions
    stubs = tuple(item for item, form in zip(whole.functions, functions, strict=True) if not form.runs)
    result = anatomy_of(CodeFile(whole.arch, stubs), asked)
    expect_values(result.advice, 10)


def _predicted_code(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[str]]:
    """The first kernel of an explained answer, and the lines about its machine code."""
    args = ["--n", "16", "--c", "256", "--arch", "gfx950", "--explain", "--json"]
    assert run(["predict", *args]) == ExitCode.OK
    load = json.loads(capsys.readouterr().out)["explanation"]
    return load["first"], load["code"]


@pytest.mark.slow
def test_predict_explains_locally_compiled_kernels(
    least: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A kernel compiled on this machine is explained by its own code; without it there are no lines on registers."""
    assert _predicted_code(capsys)[1] == []
    monkeypatch.setattr("ckh.isa.source.of_compiled", lambda *_: ckh.explain(LEAST, code_object=least))
    _, lines = _predicted_code(capsys)
    (clocks,) = (line for line in lines if line.startswith("iteration"))
    assert "vector ALU 464" in clocks
    assert not any(line.startswith("compiled") for line in lines)


def test_code_of_another_target(least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Code for another GPU than the given one, or for an unsupported GPU, is refused."""
    assert _refused(capsys, LEAST, "--code-object", least, "--arch", "gfx942") == (ExitCode.BAD_DATA, "damaged")
    other, data = tmp_path / "other.co", bytearray(least.read_bytes())
    for machine, expected in (
        (0x41, (ExitCode.USAGE, "usage")),  # gfx1100
        (0xFE, (ExitCode.BAD_DATA, "damaged")),  # of no GPU that is known
    ):
        data[_FLAGS : _FLAGS + 4] = struct.pack("<I", machine)
        other.write_bytes(data)
        assert _refused(capsys, LEAST, "--code-object", other) == expected


@pytest.mark.parametrize("kind", ["empty", "text", "cut", "zeros", "no file"])
def test_damaged_files(kind: str, least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that are not complete code objects are refused in one line."""
    file, data = tmp_path / "code.co", least.read_bytes()
    if kind != "no file":
        file.write_bytes({"empty": b"", "text": b"kernel", "cut": data[:5000], "zeros": data[:64] + bytes(8000)}[kind])
    expected = "unreadable" if kind == "no file" else "damaged"
    assert _refused(capsys, LEAST, "--code-object", file) == (ExitCode.BAD_DATA, expected)


def _vgprs(capsys: pytest.CaptureFixture[str], file: Path) -> list[int]:
    return [item["resources"]["vgprs"] for item in _explained(capsys, LEAST, "--code-object", file)["functions"]]


@pytest.mark.slow
def test_bundles_that_take_a_square_of_their_size_are_refused(
    least: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More entries than there are architectures, and bundles that have the same code, beyond a limit."""
    name, kernel = b"hip-amdgcn-amd-amdhsa--gfx950", least.read_bytes()
    functions = len(read_code(least, None).functions)
    size = len(BUNDLE_MAGIC) + 32 + len(name)
    for count, entries, most in ((3, 1, 3 * len(kernel)), (3, 1, 2 * len(kernel)), (1, 65, 1 << 30)):
        heads = [struct.pack("<QQQQ", entries, (count - at) * size, len(kernel), len(name)) for at in range(count)]
        file = tmp_path / f"{most}.co"
        file.write_bytes(b"\0" + b"".join(BUNDLE_MAGIC + head + name for head in heads) + kernel)
        monkeypatch.setattr(codefile, "most_unpacked", lambda _size, most=most: most)
        if most == 3 * len(kernel):
            assert len(read_code(file, None).functions) == count * functions
        else:
            with expect_refusal(DataError, "damaged", file):
                read_code(file, None)


def test_damaged_instructions(least: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Invalid instructions leave the other information intact."""
    data = bytearray(least.read_bytes())
    start = len(data) // 2
    data[start : start + 64] = b"\xff" * 64
    file = tmp_path / "code.co"
    file.write_bytes(data)
    result = _explained(capsys, LEAST, "--code-object", file)
    assert [item["resources"]["vgprs"] for item in result["functions"]] == _vgprs(capsys, least)


def test_wrong_names_and_problems(least: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown name needs a code object and takes no problem; a problem must match the kernel."""
    usage = ExitCode.USAGE
    assert _refused(capsys, "kernel", "--arch", "gfx950") == (usage, "incomplete-kernel")
    assert _refused(capsys, "kernel", _problem(64), "--code-object", least) == (usage, "incomplete-kernel")
    assert _refused(capsys, LEAST, _problem(63), "--code-object", least) == (ExitCode.NO_KERNEL, "no-kernel")
    gemm = "gemm_bf16_rcr_m64_n64_k64_splitk1"
    assert _refused(capsys, LEAST, gemm, "--code-object", least) == (usage, "bad-problem")
    assert _refused(capsys, LEAST, "--code-object", least, "--c", "64") == (usage, "inapplicable-option")
    assert _refused(capsys, LEAST, "--code-object", least, "--svg", "x.svg") == (usage, "inapplicable-option")


@pytest.mark.slow
def test_the_page_shows_what_the_command_prints(
    least: Path, tmp_path: Path, narrow: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output in docs/explain.md is the command's; CKH_UPDATE_GOLDEN=1 writes it."""
    page = Path(__file__).parents[2] / "docs" / "explain.md"
    text = page.read_text(encoding="utf-8")
    _, command, shown = re.split(r"```console\n\$ ckh (.*)\n", text, maxsplit=1)
    shown = shown.split("```", 1)[0]
    monkeypatch.chdir(tmp_path)
    Path("kernel.co").write_bytes(least.read_bytes())
    assert run(shlex.split(command)) == ExitCode.OK
    printed = capsys.readouterr().out
    if os.environ.get("CKH_UPDATE_GOLDEN"):
        page.write_text(text.replace(shown, printed), encoding="utf-8")
    else:
        assert shown == printed

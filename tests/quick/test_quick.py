"""Quick answers equal the full command's to the letter, or do not exist."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from ckh import cli
from ckh.commands import predict as command
from ckh.entry import run
from ckh.errors import ExitCode
from ckh.files.paths import cache_dir
from ckh.kernels.compiled import add_compiled
from ckh.learn.answers.probes import Probe, Timed, remember, this_device
from ckh.learn.models.spec import ModelSpec
from ckh.ops import built_in_requested
from ckh.quick import answer, printed
from ckh.quick.answer import text_of
from ckh.quick.prepare import prepare
from ckh.quick.printed import keep_printed, key_of, read_printed
from ckh.quick.request import FLAGS, NUMBERS, TEXTS, Request, parse
from ckh.quick.store import paths, read_facts, stamp
from ckh.ranking.layout import CSRC, HEADER, lists
from ckh.ranking.library import is_available
from ckh.schema import RESOURCE_NAMES, Resources
from ckh.text.log import written
from tests.export.conftest import COMPILERS
from tests.export.conftest import run as run_program
from tests.quick.conftest import asked, full
from tests.refusals import expect_warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CONVOLUTIONS = [
    "--n 16 --c 256",
    "--c 64 --k 128 --hi 56 --stride 2 --top 3",
    "--c 32 --g 32 --hi 17 --y 5 --x 1 --top 300",
    "--n 3 --c 96 --g 3 --hi 14 --wi 20 --dilation 1x2 --pad 0",
    "--di 9 --c 24 --y 1",
    "--ndim 3 --c 8 --k 40 --top 1",
    "--n 999999 --c 64",
]
GEMMS = [
    "--m 128 --n 1536 --k 7168",
    "--m 1 --n 4096 --k 4096 --layout rrr",
    "--m 100 --n 31 --k 1 --top 2000",
    "--op gemm_universal --m 64 --n 64 --k 64 --layout ccr --dtype fp32 --arch host",
]


COMPILED = "grouped_conv_forward_bf16_nhwgc_2d_compv3_cshuffle_intrawave_64x128x64_2x2x1_32x32x16"


def quick(request: Request) -> str | None:
    """The quick answer as printed."""
    text = text_of(request)
    return None if text is None else written(text)


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("lines", [CONVOLUTIONS, GEMMS], ids=["conv", "gemm"])
@pytest.mark.parametrize("flags", ["", " --json", " --why", " --why --json --no-measured"])
def test_answers_equal_the_full_command(lines: Sequence[str], flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For every problem, as text or JSON, whether it was the first request or another of its kind."""
    for line in lines:
        assert prepare(asked(line))
    for line in lines:
        assert quick(asked(line + flags)) == full(capsys, line + flags)


@pytest.mark.usefixtures("alone")
def test_speeds_above_the_peak_equal_the_full_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither predicts one."""
    monkeypatch.setattr(ModelSpec, "peak_of", lambda *_: (1e-9, 1))
    line = "--n 16 --c 256 --json"
    assert prepare(asked(line))
    result = quick(asked(line))
    assert result == full(capsys, line)
    assert {row["tflops"] for row in json.loads(result or "")["kernels"]} == {None}


@pytest.mark.usefixtures("alone")
def test_colours_equal_the_full_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's line is green in both; NO_COLOR wins, and JSON has no colour."""
    line = "--n 16 --c 256"
    assert prepare(asked(line))
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    result = full(capsys, line)
    assert "\x1b[32mmodel " in result
    assert written(text_of(asked(line)) or "", in_colour=True) == result
    assert "\x1b" not in full(capsys, f"{line} --json")
    monkeypatch.setenv("NO_COLOR", "1")
    assert full(capsys, line) == re.sub("\x1b\\[[0-9]*m", "", result)


def random_convolutions(seed: int) -> Iterator[str]:
    """Options of convolutions, some of which need padded channels and some of which have no kernel."""
    random = Random(seed)
    while True:
        groups, size = random.choice([1, 1, 4]), random.randint(5, 60)
        channels, filters = (groups * random.choice([3, 8, 16, 64, 200]) for _ in "ck")
        further = random.choice(["", " --stride 2", " --y 1", " --n 64", " --n 3 --pad 0"])
        yield f"--c {channels} --k {filters} --g {groups} --hi {size}{further}"


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("problems", "options", "basis"),
    [
        (random_convolutions, "--arch gfx942", "estimate"),
        (random_convolutions, "--arch gfx942 --variant bwd_weight", "estimate"),
        (random_convolutions, "--arch gfx950 --dtype fp16", "model"),
    ],
)
def test_answers_without_a_model_equal_the_full_command(
    problems: Callable[[int], Iterator[str]],
    options: str,
    basis: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Thirteen random sizes: by the estimate, and by a model that it extends; few channels have a pool of their own."""
    monkeypatch.delenv("CKH_MODELS")
    add_compiled("gfx942", "grouped_conv", COMPILED, Resources(512, 0, 100, 65536, 0, 0, 0, occupancy=1))
    lines = problems(len(options))
    prepared = set()
    for number, line in enumerate(islice(lines, 13)):
        told = f"{line} {options} --top {number * number + 1} {['', '--json', '--why'][number % 3]}"
        if (pool := asked(told).kind["pool of grouped_conv"]) not in prepared:
            prepared.add(pool)
            assert prepare(asked(told))
        assert quick(asked(told)) == full(capsys, told)
    first = json.loads(full(capsys, f"--c 64 --k 64 {options} --json"))
    assert first["not_measured"]["basis"] == basis


@pytest.mark.usefixtures("alone")
def test_problems_that_c_cannot_state_are_not_prepared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model of a single product's families also knows grouped ones, whose number of groups C's struct lacks."""
    monkeypatch.delenv("CKH_MODELS")
    single = "--op aiter_gemm --arch gfx942 --library fbgemm --n 5120 --k 1024 --m 64"
    grouped = f"{single} --family a8w8_grouped --groups 16"
    assert not prepare(asked(grouped))
    assert quick(asked(grouped)) is None
    assert full(capsys, f"{grouped} --json")
    assert prepare(asked(single))


@pytest.mark.usefixtures("alone")
def test_estimates_of_several_products_are_not_prepared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The estimate of both products of a mixture is a sum that C does not compute; measured kinds are prepared."""
    monkeypatch.delenv("CKH_MODELS")
    kind = "--op aiter_moe --arch gfx942 --tokens 64 --model-dim 7168 --inter-dim 256 --experts 256 --topk 8 --json"
    assert not prepare(asked(f"{kind} --quant per_1x128"))
    document = json.loads(full(capsys, f"{kind} --quant per_1x128"))
    assert document["not_measured"]["basis"] == "estimate"
    assert prepare(asked(kind))
    assert quick(asked(kind)) == full(capsys, kind)


@pytest.mark.usefixtures("alone")
def test_a_compiled_kernel_invalidates_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer prepared from the estimate is void once a kernel of the operation was compiled for the GPU."""
    monkeypatch.delenv("CKH_MODELS")
    line, none = asked("--c 64 --arch gfx942"), Resources(*range(len(RESOURCE_NAMES)))
    assert prepare(line)
    add_compiled("gfx942", "gemm_universal", COMPILED, none)
    assert quick(line) is not None
    add_compiled("gfx942", "grouped_conv", COMPILED, none)
    assert quick(line) is None


@pytest.mark.usefixtures("alone")
def test_the_second_call_is_quick(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call prepares the answer; later ones, also for other problems of the kind, skip the full command."""
    assert run(["predict", "--c", "48"]) == 0
    first = capsys.readouterr().out
    expected = full(capsys, "--c 80 --n 2")

    def no_cli(_: object) -> int:
        raise AssertionError("the full command was asked")

    monkeypatch.setattr(cli, "dispatch", no_cli)
    assert run(["predict", "--c", "48"]) == 0
    assert capsys.readouterr().out == first
    assert run(["predict", "--c", "80", "--n", "2"]) == 0
    assert capsys.readouterr().out == expected
    assert run(["predict", "--c", "48", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sizes"]["c"] == 48


@pytest.mark.usefixtures("alone")
def test_other_matching_models_are_named(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quick answer names the models that were not chosen, as the full command does."""
    for name in ("one", "two"):
        shutil.copytree(models / "conv", tmp_path / "both" / name)
    monkeypatch.setenv("CKH_MODELS", str(tmp_path / "both"))
    assert prepare(asked("--c 48 --why"))
    text = quick(asked("--c 48 --why"))
    assert text is not None
    assert f"preferred over {tmp_path / 'both' / 'two'}" in text
    assert text == full(capsys, "--c 48 --why")


@pytest.mark.usefixtures("alone")
def test_another_model_invalidates_the_answer(models: Path) -> None:
    """A changed or new model file voids prepared answers."""
    line = asked("--c 48")
    assert prepare(line)
    assert quick(line) is not None
    spec = models / "conv" / "feature_spec.json"
    before = spec.stat()
    os.utime(spec, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert quick(line) is None
    os.utime(spec, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert quick(line) is not None
    (models / "new").mkdir()
    (models / "new" / "feature_spec.json").write_text("{}")
    assert quick(line) is None
    (models / "new" / "feature_spec.json").unlink()
    (models / "new").rmdir()


@pytest.mark.usefixtures("alone")
def test_large_pools_are_not_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparing would take longer than many answers."""
    monkeypatch.setattr("ckh.quick.prepare.MOST_KERNELS", 299)
    assert not prepare(asked("--c 48"))
    assert quick(asked("--c 48")) is None


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("flags", ["", " --json", " --why", " --top 300 --json", " --top 1"])
def test_measured_kernels_rank_first(flags: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Probed kernels come first by time, failed ones last, as in the full command."""
    assert prepare(asked("--c 48"))
    plain = quick(asked(f"--c 48{flags}"))
    document = json.loads(full(capsys, "--c 48 --top 300 --json"))
    names = [item["kernel"] for item in document["kernels"]]
    timed = [
        Timed(names[0], "crash", "signal 11", None, None),
        Timed(names[3], "ok", "", 2.5, 0.01),
        Timed(names[7], "ok", "", 1.25, 0.01),
        Timed("of_an_older_version", "ok", "", 0.5, 0.01),
    ]
    device = this_device("host")
    assert device is not None
    remember(Probe(document["problem"], "host", device, "2026-01-02T03:04:05+00:00", "0.1", "g++", tuple(timed)))
    expected = full(capsys, f"--c 48{flags}")
    assert quick(asked(f"--c 48{flags}")) == expected != plain
    assert quick(asked(f"--c 48{flags} --no-measured")) == plain
    assert quick(asked("--c 40")) == full(capsys, "--c 40")


@pytest.mark.usefixtures("alone")
def test_kernels_are_refused_for_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    """Reasons have the sizes of the requested problem, and counts are counts of kernels."""
    assert prepare(asked("--m 128 --n 1536 --k 7168"))
    for sizes, words in (("--m 31 --n 17 --k 3", "M = 31 is not"), ("--m 512 --n 17 --k 3", "N = 17 is not")):
        result = quick(asked(f"{sizes} --json"))
        assert result is not None
        assert any(reason.startswith(words) for reason in json.loads(result)["refused"])
        assert result == full(capsys, f"{sizes} --json")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "where", ["ckh.quick.prepare.prepare", "ckh.quick.answer.answered", "ckh.quick.answer.text_of"]
)
def test_an_interrupt_prints_no_traceback(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends with its exit code, also while answers are prepared or printed."""

    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    assert run(["predict", "--c", "48"]) == ExitCode.INTERRUPTED


@pytest.mark.usefixtures("alone")
def test_without_c_there_is_no_quick_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """$CKH_RANK_BACKEND=numpy disables quick answers."""
    assert prepare(asked("--c 48"))
    monkeypatch.setenv("CKH_RANK_BACKEND", "numpy")
    assert quick(asked("--c 48")) is None
    assert not prepare(asked("--c 48"))


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("content", [b"", b"CKHMODEL", b"\0" * 4096])
def test_damaged_files_give_no_answer(content: bytes) -> None:
    """Missing files neither; preparing again repairs them."""
    line = asked("--c 48")
    assert prepare(line)
    expected = quick(line)
    facts, model = paths(line)
    for damaged in (content, model.read_bytes()[:-9]):
        model.write_bytes(damaged)
        assert quick(line) is None
        assert prepare(line)
        assert quick(line) == expected
    whole = facts.read_bytes()
    for damaged in (b"", content, whole[:-9], whole.replace(b"a test", b"a tent", 1)):
        facts.write_bytes(damaged)
        assert quick(line) is None
        assert prepare(line)
        assert quick(line) == expected


@pytest.mark.usefixtures("alone")
def test_files_of_another_kind_give_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither if a single property differs, such as the direction."""
    line = asked("--c 48")
    assert prepare(line)
    facts = read_facts(paths(line)[0], stamp(line))
    assert facts is not None
    own = {"variant": "forward", "ndim": 2, "dtype": "fp32", "layout": "nhwgc"}
    for kind in (own, *({**own, name: "another"} for name in own)):
        monkeypatch.setattr(answer, "read_facts", lambda *_, kind=kind: {**facts, "fixed": kind})
        assert (quick(line) is None) == (kind != own)


@pytest.mark.usefixtures("alone")
def test_without_a_cache_the_full_command_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a file in place of the folder nothing is prepared, nothing fails, and one line reports it."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert quick(asked("--c 48")) is None
    assert not prepare(asked("--c 48"))
    for more in ([], ["--explain"]):
        assert run(["predict", "--c", "48", "--why", *more]) == 0
    out, err = capsys.readouterr()
    assert out.count("300 candidates") == 2
    expect_warning(err, "cache", tmp_path / "file/cache")


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    "line", ["--c 7 --g 2", "--n 0", "--hi 1 --y 9 --pad 0", "--c 48 --split-k 2", "--c 48 --layout nhwgc", "--ndim 5"]
)
def test_errors_are_left_to_the_full_command(line: str) -> None:
    """Invalid sizes, and options of other operations, have no quick answer."""
    assert prepare(asked("--c 48"))
    assert quick(asked(line)) is None


@pytest.mark.parametrize(
    "line",
    [
        "--json --json",
        "--json=yes",
        "--measured --no-measured",
        "--c",
        "--c --json",
        "--c x",
        "--c -3",
        "--c=64",
        "--c 64 --c 32",
        "--unknown 3",
        "--probe 3",
        "c 64",
        "--c 1e3",
    ],
)
def test_other_commands_are_left_to_the_full_command(line: str) -> None:
    """Flags, other spellings, and wrong usage."""
    assert parse(["predict", *line.split()]) is None


@pytest.mark.parametrize(
    ("typed", "same"),
    [
        ("--n 16 --arch MI300X", "--n 16 --arch gfx942"),
        ("--c 64 --dtype bfloat16 --arch mi355x", "--c 64 --dtype bf16 --arch gfx950"),
        ("--op conv --c 64", "--op grouped_conv --c 64"),
        ("--op gemm --m 8 --n 8 --k 8 --layout NT", "--op gemm_universal --m 8 --n 8 --k 8 --layout rcr"),
        ("--m 8 --n 8 --k 8 --layout RRR", "--m 8 --n 8 --k 8 --layout rrr"),
        (
            "--op aiter --m 8 --n 8 --k 8 --arch mi308x",
            "--op aiter_gemm --m 8 --n 8 --k 8 --num-cus 80 --arch gfx942",
        ),
        (
            "--op aiter --m 8 --n 8 --k 8 --arch mi308x --num-cus 40",
            "--op aiter_gemm --m 8 --n 8 --k 8 --num-cus 40 --arch gfx942",
        ),
    ],
)
def test_other_spellings_give_the_same_answer(typed: str, same: str) -> None:
    """Products, element types, operations and layouts are made canonical before the lookup."""
    assert asked(typed) == asked(same)


def test_options_match_predict() -> None:
    """Names and types equal the full command's; flags are those that print or leave out."""
    parameters = inspect.signature(command.predict).parameters
    types = {name: str(parameter.annotation).removeprefix("<class '") for name, parameter in parameters.items()}
    sizes = {option.name: option.kind.__name__ for part in built_in_requested().values() for option in part.options}
    assert {name for name, kind in sizes.items() if not types[name].startswith(kind)} == set()
    assert {name for name in NUMBERS if not types[name].startswith("int")} == set()
    assert {name for name in TEXTS if types[name].startswith(("int", "bool"))} == set()
    others = {"problems", "probe", "kernels", "timeout", "require", "measured", "why", "explain", "as_json"}
    others |= {"pad_channels", "rule_set", "cus"}
    assert {*sizes, *NUMBERS, *TEXTS, *others} == set(types), (
        "each is a size, a number or text, or for the full command"
    )
    flags = {"measured", "why", "explain", "as_json", "pad_channels"}
    assert {name for name, kind in types.items() if kind.startswith("bool")} == flags
    assert set(FLAGS["predict"]) == {"measured", "no_measured", "why", "wide", "json"}


@pytest.mark.slow
def test_imports_are_few(models: Path, tmp_path: Path) -> None:
    """A quick answer imports neither NumPy nor Typer nor their dependencies, and creates no dataclass."""
    code = (
        "import sys; from ckh.entry import run; "
        "assert run(['predict', '--c', '48', '--arch', 'host', *sys.argv[1:]]) == 0; "
        "slow = 'dataclasses', 'numpy', 'typer', 'click', 'pydantic', 'rich', 'lightgbm'; "
        "print([name for name in slow if name in sys.modules])"
    )
    environment = {**os.environ, "CKH_MODELS": str(models), "CKH_CACHE_DIR": str(tmp_path / "cache")}
    environment |= {"CKH_DATA_DIR": str(tmp_path / "user"), "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    if not is_available():
        pytest.skip("ckh was installed without its C part")
    for expected, *options in (("numpy",), ("[]",), ("[]", "--json")):
        done = subprocess.run(
            [sys.executable, "-c", code, *options],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert expected in done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def damage_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program damage.c with the C part, under sanitizers."""
    if not COMPILERS:
        pytest.skip("no C compiler")
    sources = [path for path in sorted(CSRC.glob("*.c")) if path.name != "ckh.c"]
    sources.append(Path(__file__).with_name("damage.c"))
    program = tmp_path_factory.mktemp("damage") / "damage"
    flags = ["-std=c11", "-DCKH_SIZES_ONLY", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    run_program([COMPILERS[0][0], *flags, f"-I{CSRC}", *sources, "-o", program, "-lm"])
    return program


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("line", [CONVOLUTIONS[0], GEMMS[0]], ids=["conv", "gemm"])
def test_damaged_programs_stay_in_bounds(line: str, damage_program: Path) -> None:
    """Hundreds of files damaged mostly in the program, under sanitizers: refused, or ranked within bounds."""
    question = asked(line)
    assert prepare(question)
    facts = read_facts(paths(question)[0], stamp(question))
    assert facts is not None
    problem = answer.problem_of(question, facts)
    sizes = [getattr(problem, name) for name in facts["sizes"]]
    begin, end = _program_range(paths(question)[1].read_bytes())
    command_line = [damage_program, paths(question)[1], "400", "11", begin, end, *facts["key"], *sizes]
    opened, ranked = map(int, run_program(command_line).split())
    assert 4 < ranked <= opened < 300


def _program_range(content: bytes) -> tuple[int, int]:
    """The position of the program's arrays, after those of the header."""
    at, bounds = HEADER.size, []
    head, program = (len(lists()[f"{section}_ARRAYS"]) for section in ("HEAD", "PROGRAM"))
    for _ in range(head + program):
        size, count = int.from_bytes(content[at : at + 4], "little"), int.from_bytes(content[at + 4 : at + 8], "little")
        bounds.append(at)
        at += 8 + (size * count + 7) // 8 * 8
    return bounds[head], at


@pytest.fixture
def printed_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Options answered by an estimate from an unprepared pool, and an empty cache and data folder."""
    monkeypatch.setattr("ckh.quick.prepare.MOST_KERNELS", 1)
    monkeypatch.setenv("CKH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CKH_DATA_DIR", str(tmp_path / "data"))
    return ["predict", "--variant", "bwd_data", "--dtype", "fp16", "--arch", "gfx90a", "--n", "16", "--c", "96"]


@pytest.mark.parametrize("more", [[], ["--json"], ["--why", "--top", "2"]])
def test_an_estimate_is_answered_quickly(
    more: list[str], printed_before: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second call with the same options prints the same without the full command; other options do not."""
    args = [*printed_before, *more]
    assert run(args) == ExitCode.OK
    first = capsys.readouterr().out
    assert "estimate" in first
    monkeypatch.setattr(cli, "dispatch", lambda _args: 77)
    assert (run(args), capsys.readouterr().out) == (ExitCode.OK, first)
    assert run([*args[:-1], "5"]) == 77
    assert run([*args, "--no-measured"]) == 77


@pytest.mark.usefixtures("printed_before")
def test_a_refusal_is_repeated_quickly(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """If no kernel applies, a second call prints the same error without the full command; other sizes do not."""
    args = ["predict", "--op", "gemm_preshuffle", "--arch", "gfx950", "--m", "12", "--n", "16", "--k", "8", "--json"]
    assert run(args) == ExitCode.NO_KERNEL
    first = capsys.readouterr()
    assert json.loads(first.out)["code"] == "no-kernel"
    monkeypatch.setattr(cli, "dispatch", lambda _args: 77)
    assert (run(args), capsys.readouterr()) == (ExitCode.NO_KERNEL, first)
    assert run([*args[:-2], "16"]) == 77


def test_output_follows_probed_times(
    printed_before: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a probe, a compiled kernel or damage the full command answers; --probe is never cached."""
    request, key = parse(printed_before), key_of(printed_before)
    assert request is not None
    assert key is not None
    assert parse([*printed_before, "--probe", "5"]) is None
    assert run(printed_before) == ExitCode.OK
    text = capsys.readouterr().out
    assert read_printed(key) == ("", text, "")
    remember(Probe("conv", "gfx90a", "", "now", "0", "hipcc", (Timed("a", "ok", "", 1.0, 0.0),)))
    assert read_printed(key) is None
    keep_printed(key, request, "", text)
    assert read_printed(key) == ("", text, "")
    add_compiled("gfx90a", "grouped_conv", "a", Resources(*range(len(RESOURCE_NAMES))))
    assert read_printed(key) is None
    keep_printed(key, request, "", text)
    with monkeypatch.context() as narrow:
        narrow.setenv("COLUMNS", "60")
        assert key_of(printed_before) != key
    assert read_printed(key) == ("", text, "")
    (kept,) = (cache_dir() / "printed").iterdir()
    kept.chmod(0o666)
    assert read_printed(key) is None
    kept.chmod(0o600)
    assert read_printed(key) == ("", text, "")
    kept.write_bytes(kept.read_bytes()[:-5] + b'xxx"}')
    assert read_printed(key) is None


def test_few_short_answers_are_kept(printed_before: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the oldest is removed, and a text that is too long is not kept."""
    monkeypatch.setattr(printed, "MAX_PRINTED", 3)
    monkeypatch.setattr(printed, "MAX_PRINTED_BYTES", 12)
    request = parse(printed_before)
    assert request is not None
    keys = [key_of([*printed_before, "--top", str(top)]) or b"" for top in range(1, 6)]
    for number, key in enumerate(keys):
        keep_printed(key, request, "", "text" if number else "x" * 13)
        assert (read_printed(key) is not None) == bool(number)
    assert len(list((cache_dir() / "printed").iterdir())) == 3
    assert [read_printed(key) is not None for key in keys] == [False, False, True, True, True]


@pytest.mark.usefixtures("alone")
def test_a_quick_answer_warns_of_an_unusable_model_too(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line on stderr names file and field, in the full and the quick answer; stdout is the same."""
    damaged = tmp_path / "more" / "amd"
    damaged.mkdir(parents=True)
    (damaged / "feature_spec.json").write_text('{"op_type": "grouped_conv", "dtype": "fp32"}', encoding="utf-8")
    monkeypatch.setenv("CKH_MODELS", f"{models}{os.pathsep}{damaged.parent}")
    line = f"the model {damaged} is not used: {damaged}/feature_spec.json: arch is missing"
    assert run(["predict", "--c", "64"]) == ExitCode.OK
    first = capsys.readouterr()
    assert first.err.count(line) == 1
    assert quick(asked("--c 64")) == first.out
    assert capsys.readouterr().err.count(line) == 1
    (damaged / "feature_spec.json").unlink()
    assert quick(asked("--c 64")) is None

"""Every output option of every command keeps the rule: foreign files, inputs, planted links and others' files stay."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer

from ckh.cli import COMMANDS, build_app, run
from ckh.data.dataset import read_dataset
from ckh.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
_MODEL = ROOT / "models" / "grouped_conv_forward_bf16_gfx950"
_NAMES = {"out", "plots", "verdict_files", "write_registry", "create", "holdout", "split"}  # parameters of outputs
_PRECIOUS = b"precious"


@dataclass(frozen=True)
class Output:
    """A command line with OUT for its output; inputs that it reads, and whether it has --force."""

    line: str
    inputs: tuple[str, ...] = ()
    force: bool = True
    written: str = ""
    """The file that is written if OUT is a folder, or a part of a name."""


_DEVICE = "--device host --problems problems.txt --kernels sample:1"
OUTPUTS = {
    ("shapes", "out"): Output("shapes config.json --out OUT", ("config.json",)),
    ("convert", "out"): Output("convert data.parquet --out OUT", ("data.parquet",)),
    ("convert", "split"): Output("convert data.parquet --split 50% --out OUT", ("data.parquet",), written="-holdout"),
    ("train", "out"): Output("train data.parquet --trees 2 --folds 0 --out OUT", ("data.parquet",)),
    ("train", "holdout"): Output(
        "train data.parquet --trees 2 --folds 0 --holdout 50% --out OUT", ("data.parquet",), written="-holdout"
    ),
    ("export", "out"): Output("export --model model --to c --out OUT", ("model",)),
    ("report", "out"): Output("report data.parquet --out OUT", ("data.parquet",)),
    ("report", "plots"): Output("report data.parquet --out r.html --plots OUT", written="coverage.svg"),
    ("validate selection", "create"): Output(
        "validate selection OUT --create --model model --problems problems.csv", ("model", "problems.csv")
    ),
    ("validate selection", "verdict_files"): Output(
        "validate selection golden.json --model model --verdict OUT.md", ("golden.json",), force=False, written=".md"
    ),
    ("validate compare", "verdict_files"): Output(
        "validate compare model model --data data.parquet --verdict OUT.xml",
        ("data.parquet",),
        force=False,
        written=".xml",
    ),
    ("validate parity", "verdict_files"): Output(
        "validate parity --problems problems.csv --model model --verdict OUT.md",
        ("problems.csv",),
        force=False,
        written=".md",
    ),
    ("bench", "out"): Output(f"bench {_DEVICE} --out OUT", (), written="journal.jsonl"),
    ("bench", "write_registry"): Output(f"bench {_DEVICE} --write-registry OUT", ("problems.txt",)),
    ("search measure", "out"): Output("search measure PROBLEM --device host --out OUT", (), written="journal.jsonl"),
    ("search set", "write_registry"): Output(
        "search set --data data.parquet --size 2 --write-registry OUT", ("data.parquet",)
    ),
    ("tune", "out"): Output("tune config.json --arch gfx942 --dry-run --out OUT", (), written="tune.json"),
    ("doctor", "out"): Output("doctor --check --device host --out OUT"),
}
_PROBLEM = "conv_forward_fp32_nhwgc_2d_n1_c8_k8_g1_i8x8_f3x3_s1x1_p1x1_d1x1"


def _options(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    yield from ((" ".join(path), item.name) for item in command.params if item.name in _NAMES)
    for name, below in getattr(command, "commands", {}).items():
        yield from _options(below, (*path, name))


def test_every_output_option_is_tried() -> None:
    """A new option that names an output gets a line here."""
    assert set(_options(typer.main.get_command(build_app(tuple(COMMANDS))))) == OUTPUTS.keys()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the files that the commands read."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "config.json").write_text(
        '{"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":1,"num_attention_heads":4,'
        '"num_key_value_heads":2,"vocab_size":256,"torch_dtype":"bfloat16"}',
        encoding="utf-8",
    )
    (folder / "problems.txt").write_text(_PROBLEM + "\n", encoding="utf-8")
    (folder / "problems.csv").write_text("n,c,k,hi,wi,y,x\n1,64,64,14,14,3,3\n", encoding="utf-8")
    (folder / "golden.json").write_text("{}", encoding="utf-8")
    data = read_dataset(ROOT / "data" / "amd-gfx950-conv-20kernels.parquet")
    data.select(data.problem_ids < 6).write(folder / "data.parquet")
    shutil.copytree(_MODEL, folder / "model")
    return folder


def _named(output: Output, out: Path) -> tuple[list[str], Path]:
    """The arguments, and the file that they would write."""
    line = [word.replace("OUT", str(out)).replace("PROBLEM", _PROBLEM) for word in output.line.split()]
    if output.written.startswith("."):
        return line, out.with_name(out.name + output.written)
    if output.written == "-holdout":
        return line, out.with_name(f"{out.stem}-holdout.parquet")
    return line, out / output.written if output.written else out


@pytest.mark.parametrize(("command", "option"), OUTPUTS)
def test_an_output_replaces_nothing_foreign(
    command: str, option: str, inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of another kind, with --force too; own inputs; a link and a file of another user in a shared folder."""
    output = OUTPUTS[command, option]
    work = tmp_path / "work"
    shutil.copytree(inputs, work)
    monkeypatch.chdir(work)
    before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
    force = [[], ["--force"]] if output.force else [[]]
    line, written = _named(output, tmp_path / "out")
    written.parent.mkdir(exist_ok=True)
    written.write_bytes(_PRECIOUS)
    for more in force:
        assert run([*line, *more]) in {ExitCode.USAGE, ExitCode.BAD_DATA}  # a damaged tune.json
        assert written.read_bytes() == _PRECIOUS
    for source in output.inputs if not output.written else ():
        for more in force:
            assert run([*_named(output, work / source)[0], *more]) == ExitCode.USAGE
    if os.geteuid() == 0:
        shared, target = tmp_path / "shared", tmp_path / "target"
        shared.mkdir()
        shared.chmod(0o1777)
        target.mkdir()
        line, written = _named(output, shared / "out")
        is_below = written.parent != shared
        planted = shared / "out" if is_below else written
        planted.symlink_to(target if is_below else target / "file")
        os.chown(planted, 54321, 54321, follow_symlinks=False)
        for more in force:
            assert run([*line, *more]) == ExitCode.INPUT_OUTPUT
        assert list(target.iterdir()) == []
        planted.unlink()
        if not is_below:
            written.write_bytes(b"")  # of any kind
            os.chown(written, 54321, 54321)
            for more in force:
                assert run([*line, *more]) == ExitCode.INPUT_OUTPUT
            assert written.read_bytes() == b""
    assert {path: path.read_bytes() for path in before} == before

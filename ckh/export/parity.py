"""Kernels picked by consumers: exported C and AMD's dispatcher are compiled and run, tables are looked up by rule."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ckh.bench.compilation.toolchain import find_compiler
from ckh.emulator.build import find_c_compiler
from ckh.errors import DeviceError, UsageError
from ckh.export.groups import exported

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ckh.export.consumers import ChoiceTable, ModelHeader
    from ckh.learn.answers.ranking import Ranking

_TIMEOUT_S = 600
_C_FLAGS = ("-std=c11", "-O1", "-ffp-contract=off")
_PROGRAM = Path(__file__).with_name("c") / "parity.c.in"
_EXAMPLE = "example.c"


@dataclass(frozen=True, slots=True)
class Pick:
    """Picks of ckh and a consumer for a problem."""

    problem: str
    """Canonical text."""
    ckh: str
    """Kernel that ckh ranks first, by the consumer's name."""
    consumer: str
    """Kernel that the consumer picks, or the reason why it picks none."""


def compiled_sources(folder: Path) -> list[Path]:
    """Compile the C sources of an export and return the object files."""
    sources = [path for path in sorted(folder.glob("*.c")) if path.name != _EXAMPLE]
    _compile([*find_c_compiler(), *_C_FLAGS, "-c", *(path.name for path in sources)], folder)
    return [folder / f"{path.stem}.o" for path in sources]


def c_picks(
    folder: Path, objects: Sequence[Path], name: str, answers: Sequence[Ranking], *, is_embedded: bool
) -> list[Pick]:
    """Run exported C and return its first kernels."""
    kind = exported(answers[0].model.spec.op_type).kind
    source, program = folder / "parity.c", folder / "parity"
    text = _PROGRAM.read_text(encoding="utf-8").replace("@KIND@", kind.name).replace("@UPPER@", kind.name.upper())
    source.write_text(text, encoding="utf-8")
    command = [*find_c_compiler(), *_C_FLAGS, source.name, *(path.name for path in objects), "-lm", "-o", program.name]
    _compile(command, folder)
    model = f"models/{name}.ckhm"
    result = _printed([str(program), model, *([name] if is_embedded else [])], folder, answers)
    firsts = (answer.best(1)[0].name for answer in answers)
    return _picks(answers, firsts, result)


def dispatcher_picks(
    folder: Path, objects: Sequence[Path], name: str, answers: Sequence[Ranking], part: ModelHeader, include: Path
) -> list[Pick]:
    """Return the kernels that AMD's dispatcher selects with an exported header, among ckh's candidates."""
    source, program = folder / "parity.cpp", folder / "parity_cpp"
    pools = {id(answer.pool): answer.pool for answer in answers}.values()
    kernels = list(dict.fromkeys(kernel for pool in pools for kernel in pool))
    source.write_text(part.program(name, answers[0].model, kernels), encoding="utf-8")
    flags = ["-std=c++17", "-O1", f"-I{include.resolve()}", "-I."]
    files = [source.name, *(path.name for path in objects)]
    _compile([*find_compiler().command, *flags, *files, "-lm", "-o", program.name], folder)
    result = _printed([str(program)], folder, answers)
    firsts = (part.called(answer.best(1)[0].kernel) for answer in answers)
    return _picks(answers, firsts, result)


def table_picks(
    folder: Path, table: ChoiceTable, answers: Sequence[Ranking], measured: Mapping[str, str] | None = None
) -> list[Pick]:
    """Return the kernels that a program finds in an export's tables by its lookup rules."""
    if table.picked is None:
        raise UsageError("its lookup is not known", code="unsupported")
    result = table.picked(folder, answers[0].model.spec.arch, [answer.problem for answer in answers])
    known = measured or {}
    firsts = (known.get(answer.problem.canonical()) or answer.best(1)[0].name for answer in answers)
    return _picks(answers, firsts, [pick or "no row" for pick in result])


def _picks(answers: Sequence[Ranking], firsts: Iterable[str], result: Iterable[str]) -> list[Pick]:
    return [Pick(item.problem.canonical(), *names) for item, *names in zip(answers, firsts, result, strict=True)]


def by_model(answers: Sequence[Ranking]) -> dict[str, list[Ranking]]:
    """Answers by models of their own GPU, by name of the model's folder; estimates cannot be exported."""
    result: dict[str, list[Ranking]] = defaultdict(list)
    for answer in answers:
        if answer.model.not_measured is None:
            result[answer.model.path.resolve().name].append(answer)
    return dict(result)


def _printed(command: list[str], folder: Path, answers: Sequence[Ranking]) -> list[str]:
    """Run a program and return the line it prints for each problem."""
    kind = exported(answers[0].model.spec.op_type).kind
    text = "".join(" ".join(map(str, kind.numbers(answer.run))) + "\n" for answer in answers)
    done = _run(command, folder, text)
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != len(answers):
        raise DeviceError(
            f"the exported program ended with {_said(done.stderr) or f'code {done.returncode}'}", code="program-failed"
        )
    return lines


def _compile(command: list[str], folder: Path) -> None:
    done = _run(command, folder, "")
    if done.returncode:
        raise DeviceError(f"{command[0]}: {_said(done.stderr)}", code="not-compiled")


def _run(command: list[str], folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, input=text, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"cannot run {command[0]}: {error}", code="program-failed") from error


def _said(text: str) -> str:
    """Return the first error in a program's messages."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), next(iter(lines), ""))

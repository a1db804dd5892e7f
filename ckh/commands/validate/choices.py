"""Golden choices of `ckh validate selection`: creation, comparison and measurement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from ckh.errors import NoKernelError, UsageError
from ckh.files.outputs import check_output, write_output
from ckh.problems import Direction
from ckh.text.log import note, warn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from ckh.assess.selection import Change, Golden
    from ckh.bench.supervision.protocol import Reply
    from ckh.learn.models.artifact import Model
    from ckh.learn.models.choice import Chooser
    from ckh.ops.base import Problem

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class WantedChoices:
    """Options for creating golden choices; None: the default."""

    model: Path | None
    arch: str | None
    dtype: str | None
    op: str | None
    variant: Direction | None


def create_golden(path: Path, source: str | None, wanted: WantedChoices, *, force: bool) -> str:
    """Write the golden choices of a list of problems; returns the text of the file."""
    from ckh.assess.selection import GOLDEN, Golden, read_golden
    from ckh.learn.models.choice import Chooser
    from ckh.shapes.problems import stated_operation

    check_output(path, GOLDEN, force=force, inputs=[wanted.model] if wanted.model else [])
    if source is not None:
        op = wanted.op or (None if wanted.model is not None else stated_operation(source))
        chooser = Chooser(wanted.model, wanted.arch, wanted.dtype, op)
        variant = None if wanted.variant is None else str(wanted.variant)
        problems: Sequence[Problem] = chooser.load_problems(source, variant, wanted.dtype)
    elif path.exists():
        old = read_golden(path)
        chooser = Chooser(wanted.model, wanted.arch or old.arch, None, old.op)
        problems = _problems(old)
    else:
        raise UsageError(
            "--create needs the list of problems", "name a set or a file with --problems", code="missing-option"
        )
    kernels = _chosen(chooser, problems)
    if not kernels:
        raise NoKernelError(f"no kernel applies to any of {len(problems)} problems")
    if len(kernels) < len(problems):
        warn(f"left out {len(problems) - len(kernels)} problems that no kernel applies to", "no-kernel")
    text = Golden(chooser.op.name, chooser.arch, kernels).text()
    write_output(path, text.encode())
    note(f"wrote {path}: the choices for {len(kernels)} problems on {chooser.arch}")
    return text


def _problems(golden: Golden) -> list[Problem]:
    from ckh.ops import operation

    return [operation(golden.op).parse_problem(text) for text in golden.kernels]


def _chosen(chooser: Chooser, problems: Iterable[Problem]) -> dict[str, str]:
    """Canonical problem -> first choice, for problems with applicable kernels."""
    from ckh.learn.answers.api import rank_many

    models: dict[int, Model] = {}
    groups: dict[int, list[Problem]] = {}
    for problem in problems:
        model = chooser.model(problem)
        models[id(model)] = model
        groups.setdefault(id(model), []).append(problem)
    found: dict[Problem, str] = {}
    for key, some in groups.items():
        for problem, ranked in zip(some, rank_many(some, 1, models[key], tflops=False), strict=True):
            if ranked:
                found[problem] = chooser.op.kernel_name(ranked[0].kernel)
    return {problem.canonical(): found[problem] for problem in problems if problem in found}


def changed_choices(golden: Golden, model: Path | None) -> list[Change]:
    """Problems whose choice changed, by a model or the models that fit."""
    from ckh.assess.selection import changes
    from ckh.learn.models.choice import Chooser

    return changes(golden, _chosen(Chooser(model, golden.arch, None, golden.op), _problems(golden)))


def with_data(found: Sequence[Change], paths: Sequence[Path], arch: str) -> list[Change]:
    """Changes with the times of both kernels in datasets."""
    from ckh.assess.measured import needed_columns
    from ckh.data.dataset import read_dataset

    dataset = read_dataset(*paths, columns=needed_columns)
    dataset = dataset.select((dataset.frame["arch"] == arch).to_numpy(dtype=bool))
    frame, number = dataset.frame, {one.canonical(): i for i, one in enumerate(dataset.problems())}
    measured = []
    for one in found:
        rows = frame[dataset.problem_ids == number.get(one.problem, -1)]
        by_name = rows.set_index(rows["kernel_name"].astype(str))
        measured.append(_with_times(one, *(_row(by_name, name) for name in (one.was, one.now))))
    return measured


def _row(rows: pd.DataFrame, kernel: str) -> tuple[float | None, str]:
    """Time of a kernel, None if unmeasured or failed, and the status of a failure, else empty."""
    if kernel not in rows.index:
        return None, ""
    row = rows.loc[kernel]
    return (float(row["latency_ms"]), "") if row["is_valid"] else (None, str(row["status"]))


def _with_times(one: Change, was: tuple[float | None, str], now: tuple[float | None, str]) -> Change:
    return replace(one, was_ms=was[0], now_ms=now[0], failed=now[1])


def with_measurements(found: Sequence[Change], golden: Golden, timeout_s: float) -> list[Change]:
    """Changes with times of both kernels, measured on this machine, interleaved."""
    from ckh.bench.devices.device_choice import device_of
    from ckh.bench.isolated.rounds import compare_kernels
    from ckh.ops import operation

    op = operation(golden.op)
    tasks = {one.problem: [op.parse_kernel(name) for name in (one.was, one.now)] for one in found if one.now}
    times: dict[str, list[tuple[float | None, str]]] = {}

    def take(problem: str, replies: list[Reply]) -> None:
        times[problem] = [_median_ms(reply) for reply in replies]

    compare_kernels(device_of(golden.arch), tasks, timeout_s, "measuring changes", take)
    return [_with_times(one, *times[one.problem]) if one.problem in times else one for one in found]


def _median_ms(reply: Reply) -> tuple[float | None, str]:
    if reply.samples_ns:
        return median(reply.samples_ns) / _NS_PER_MS, ""
    return None, f"{reply.status} {reply.message}".rstrip()

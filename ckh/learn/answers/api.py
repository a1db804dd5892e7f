"""`ckh.answer`, `ckh.rank` and `ckh.rank_many`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.archs import default_arch, load_arch, typed_arch
from ckh.errors import WrongTypeError
from ckh.files.paths import files_of_models
from ckh.learn.answers.answering import AnsweringModels
from ckh.learn.answers.batches import neighbours, scored
from ckh.learn.answers.listed import RankedAlone, require_count
from ckh.learn.answers.ranked import RankedList
from ckh.learn.answers.ranking import lacking, ranking_of, rankings_of
from ckh.learn.models.artifact import Model, load_model
from ckh.ops import as_problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ckh.learn.answers.answer import Answer
    from ckh.learn.answers.batches import Scored
    from ckh.learn.answers.ranked import Ranked
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.spec import Wanted
    from ckh.ops.base import Kernel, Problem

_AT_ONCE = 1024  # problems scored together
_KEPT = 4  # architectures whose models are cached


def rank(
    problem: Problem | str,
    top: int | None = None,
    model: Model | Path | str | None = None,
    *,
    arch: str | None = None,
    require_measured: bool = False,
    kernels: Iterable[str | Kernel] | None = None,
    rule_set: str | None = None,
) -> RankedList[Any]:
    """Rank the kernels for a problem, best first.

    Args:
        problem: the problem, or its canonical text.
        top: number of kernels; all by default.
        model: a model, or its folder, which is then read in each call; by default the first model that fits the problem
            and the architecture, or a substitute if none fits, as stated in `Ranked.not_measured`
            (`answering.AnsweringModels`).
        arch: the architecture if no model is given; by default this machine's GPU, else gfx950.
        require_measured: refuse substitute models.
        kernels: complete names (ckh's or AMD's) or kernels to rank exclusively, whether in the architecture's pool or
            not; by default that pool, and the kernels with times in the model's training data.
        rule_set: a rule set of convolutions, whose kernels are ranked exclusively.

    Raises:
        NoKernelError: no kernel applies; of `kernels`, those that the architecture cannot build are left out.
        DataError: `kernels` is empty, or has an item that is not a complete kernel of the operation, or several element
            types.
        ModelError: there is no such model, or it is damaged.
        UsageError: the model is for something else, `top` is below 0, or there is no such architecture or rule set.
    """
    require_count(top)
    answer = ranking(problem, model, arch, kernels, rule_set, require_measured=require_measured)
    return RankedList(answer.ranked if top is None else answer.best(top))


def _loaded(model: object) -> Model | None:
    """Load the named model; None if none was named."""
    if model is None or isinstance(model, Model):
        return model
    if isinstance(model, (str, Path)):
        return load_model(model)
    raise WrongTypeError("model", "a ckh.Model or the path of its folder", model)


def _models(arch: str | None) -> AnsweringModels:
    """Models of an architecture, cached until a relevant file changes."""
    files = files_of_models()
    state = tuple((path, file.st_ino, file.st_ctime_ns, file.st_mtime_ns, file.st_size) for path, file in files)
    return _kept_models(default_arch() if arch is None else typed_arch(arch), state)


@lru_cache(maxsize=_KEPT)
def _kept_models(arch: str, state: tuple[tuple[str | int, ...], ...]) -> AnsweringModels:  # noqa: ARG001 - of the cache
    return AnsweringModels(arch)


def answer(
    problem: Problem | str,
    top: int = 5,
    model: Model | Path | str | None = None,
    *,
    arch: str | None = None,
    kernels: Iterable[str | Kernel] | None = None,
    rule_set: str | None = None,
) -> Answer:
    """Answer like `ckh predict` for a problem: its first rows, facts of the model, and caveats.

    Args:
        problem: the problem, or its canonical text.
        top: number of rows.
        model: as for `rank`.
        arch: as for `rank`.
        kernels: as for `rank`.
        rule_set: as for `rank`.

    Raises:
        CkhError: as for `rank`.
    """
    require_count(top)
    return ranking(problem, model, arch, kernels, rule_set).answer(top, "")


def ranking(
    problem: Problem | str,
    model: object,
    arch: str | None,
    kernels: Iterable[str | Kernel] | None,
    rule_set: str | None,
    *,
    require_measured: bool = False,
) -> Ranking:
    """Build the ranking for `rank` and `answer`, with kernels that the headers cannot build last."""
    alone = RankedAlone.of(kernels, rule_set)
    problem, chosen = as_problem(problem), _loaded(model)
    if chosen is None:
        models = _models(arch)
        chosen = models.fitting(problem) if require_measured else models.answering(problem)
    return ranking_of(problem, alone.limit(chosen, problem)).buildable_first


def rank_many(
    problems: Sequence[Problem | str],
    top: int | None = None,
    model: Model | Path | str | None = None,
    *,
    tflops: bool = True,
    arch: str | None = None,
    require_measured: bool = False,
    kernels: Iterable[str | Kernel] | None = None,
    rule_set: str | None = None,
) -> list[RankedList[Any]]:
    """Rank kernels for many problems, best first; an empty list for problems without applicable kernels.

    Args:
        problems: the problems, or their canonical texts.
        top: number of kernels of each; all by default. Small numbers are faster.
        model: a model; by default selected for each problem, as for `rank`.
        tflops: whether to predict speed and time; the order alone takes half as long.
        arch: as for `rank`.
        require_measured: as for `rank`.
        kernels: as for `rank`.
        rule_set: as for `rank`.

    Raises:
        DataError: as for `rank`.
        ModelError: there is no such model, or it is damaged.
        UsageError: the model is for something else, `top` is below 0, or there is no such architecture.
    """
    require_count(top)
    if isinstance(problems, str) or hasattr(problems, "canonical") or not isinstance(problems, Iterable):
        raise WrongTypeError("problems", "a list of problems", problems)
    parsed = tuple(map(as_problem, problems))
    alone, loaded = RankedAlone.of(kernels, rule_set), _loaded(model)
    models = _models(arch)
    groups: dict[Wanted, dict[Problem, list[int]]] = defaultdict(dict)
    for index, problem in enumerate(parsed):
        groups[models.wanted(problem)].setdefault(problem, []).append(index)
    ranked: list[RankedList[Any]] = [RankedList() for _ in parsed]
    for wanted, places in groups.items():
        for problem, best in _best_of(list(places), wanted, loaded, models, top, (tflops, require_measured), alone):
            for index in places[problem]:
                ranked[index] = RankedList(best)
    return ranked


def _best_of(
    problems: list[Problem],
    wanted: Wanted,
    model: Model | None,
    models: AnsweringModels,
    top: int | None,
    flags: tuple[bool, bool],
    alone: RankedAlone,
) -> Iterator[tuple[Problem, list[Ranked[Any]]]]:
    """Yield the best kernels of problems for one model; problems repeat if a substitute model answers."""
    tflops, require_measured = flags
    left = []
    first = model or (models.fitting(problems[0]) if require_measured else models.first(wanted))
    for part, limited in () if first is None else _in_parts(problems, first, alone, top, tflops=tflops):
        if model is None and (part.unmeasured or not part.candidates):
            left += part.problems
        else:
            yield from zip(part.problems, _rows_of(part, limited, top, tflops=tflops), strict=True)
    by_model: dict[Model, list[Problem]] = defaultdict(list)
    for problem in problems if first is None else left:
        by_model[models.fitting(problem) if require_measured else models.answering(problem)].append(problem)
    for chosen, of_model in by_model.items():
        for part, limited in _in_parts(of_model, chosen, alone, top, tflops=tflops):
            yield from zip(part.problems, _rows_of(part, limited, top, tflops=tflops), strict=True)


def _rows_of(part: Scored, model: Model, top: int | None, *, tflops: bool) -> Iterator[list[Ranked[Any]]]:
    """Yield the first rows of problems scored together; kernels that the headers cannot build come last."""
    lacks = lacking(model.spec.op, load_arch(model.spec.arch), part.pool) if part.candidates else None
    if lacks is None or (lacks.number < 0).all():
        doubts, arch = model.not_measured, model.spec.arch
        yield from part.best(top, lambda problem: None if doubts is None else doubts.of_problem(problem, arch))
        return
    for answer in rankings_of(part.problems, model):
        first = (answer if tflops else replace(answer, tflops=None)).buildable_first
        yield first.ranked if top is None else first.best(top)


def _in_parts(
    problems: Sequence[Problem], model: Model, alone: RankedAlone, top: int | None, *, tflops: bool
) -> Iterator[tuple[Scored, Model]]:
    for limited, of_model in alone.by_model(model, problems):
        near = neighbours(of_model, model.spec.op.problems.place)
        for start in range(0, len(near), _AT_ONCE):
            for part in scored(near[start : start + _AT_ONCE], limited, top=top, tflops=tflops):
                yield part, limited

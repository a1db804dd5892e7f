"""`ckh predict`: rank all kernels for one or many problems."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from ckh.archs import measuring_arch
from ckh.commands import _completion
from ckh.commands._common import JSON_HELP, completed, examples, say
from ckh.commands._problem_options import Typed, says_a_problem
from ckh.errors import ModelError, NoKernelError, UsageError
from ckh.learn.answers.answer import AUTO
from ckh.requested import added_work, as_option, typed_again
from ckh.strenum import StrEnum
from ckh.text.durations import parse_duration
from ckh.text.log import emit, note_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ckh.learn.answers.answer import Answer
    from ckh.learn.answers.answering import Chooser
    from ckh.learn.answers.ranking import Ranking
    from ckh.learn.models.artifact import Model
    from ckh.ops.base import Problem


class Required(StrEnum):
    """Values of `--require`."""

    MEASURED = "measured"
    KNOWN = "known"


_AT_ONCE = 64  # problems ranked together
_HELP = """Rank all kernels for a problem, fastest first: a convolution, or with --m a GEMM.

If no model of the GPU and element type fits, the nearest model or an estimate answers, marked NOT MEASURED.
--probe auto measures the best kernels on this machine; later calls put these first. More: ckh help predict.
"""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(
        name="predict",
        help=_HELP,
        epilog=examples(
            "ckh predict --n 16 --c 256",
            "ckh predict --n 1 --c 64 --k 128 --hi 56 --stride 2 --top 3",
            "ckh predict --m 128 --n 1536 --k 7168 --layout rcr",
            "ckh predict --problems layers.csv --json",
            "ckh predict --op aiter_gemm --family a8w8_bpreshuffle --m 16 --n 7168 --k 2048 --arch gfx950",
            "ckh predict --m 128 --n 1536 --k 7168 --arch gfx942 --kernels names.txt",
            "ckh predict --n 1 --c 64 --hi 14 --probe 5",
            "ckh predict --n 16 --c 256 --arch gfx942 --require measured",
        ),
    )(predict)


@says_a_problem
def predict(
    typed: Typed,
    problems: str | None = completed(
        "problems",
        "Many problems: a set, a .txt, .csv, .json or AMD's .py file, or a source of ckh shapes; - is stdin.",
    ),
    kernels: str | None = typer.Option(
        None,
        "--kernels",
        metavar="FILE|-",
        help="File with the kernels to rank: complete names, one per line, or a registry; - is stdin.",
    ),
    rule_set: str | None = typer.Option(
        None,
        "--rule-set",
        autocompletion=_completion.rule_sets,
        help="Rank a rule set of convolutions: default, tiny, tests, full-tests, profiler or full.",
    ),
    cus: int | None = typer.Option(
        None, "--cus", min=1, help="Compute units that kernels may use, with a mask or partition.  [all of the GPU's]"
    ),
    top: int = typer.Option(5, "--top", min=1, help="Number of kernels to print per problem."),
    probe: str = typer.Option(
        "0", "--probe", metavar="N|auto", help="Measure the N best on this machine, or as many as the answer states."
    ),
    timeout: str = typer.Option("30s", "--timeout", metavar="TIME", help="--probe: time limit per kernel."),
    require: Required | None = typer.Option(
        None,
        "--require",
        help="Refuse, with exit code 4, problems without a model of this GPU and element type (measured), or outside "
        "the measured range (known).",
    ),
    measured: bool = typer.Option(True, "--measured/--no-measured", help="Put kernels measured here before first."),
    pad_channels: bool | None = typer.Option(
        None,
        "--pad-channels/--no-pad-channels",
        help="Rank convolutions with C/G and K/G rounded up to a multiple of 8; by default if no kernel applies.",
    ),
    why: bool = typer.Option(
        False, "--why", help="Show what else is known: counts, ties, headers, why kernels do not apply."
    ),
    explain: bool = typer.Option(False, "--explain", help="Explain why the first kernel ranks above the second."),
    as_json: bool = typer.Option(False, "--json", help=JSON_HELP),
) -> None:
    """Rank and print."""
    if kernels is not None and rule_set is not None:
        raise UsageError("--kernels and --rule-set exclude each other", "omit one of them", code="conflicting-options")
    wanted = _Measuring(
        _probe(probe),
        parse_duration(timeout),
        uses_old=measured,
        stands_in=require is None,
        kernels=kernels,
        rule_set=rule_set,
        pads=pad_channels,
    )
    options = {"problems": problems, "kernels": kernels, "rule_set": rule_set, "cus": cus}
    again = typed_again(typed.given | {name: value for name, value in options.items() if value is not None})
    again = f"ckh predict {again}" + {None: "", True: " --pad-channels", False: " --no-pad-channels"}[pad_channels]
    arch = measuring_arch() if wanted.probe is not None and typed.arch is None and typed.model is None else typed.arch
    chooser = typed.chooser(arch, problems, cus)
    if problems is None:
        ranking = _answered(chooser, wanted.run(chooser, [typed.problem(chooser, "predict")]), wanted)[0]
        if ranking.failure is not None:
            raise ranking.failure
        if require is Required.KNOWN:
            line = ranking.known(top).line
            _refuse_unknown({ranking.problem.canonical(): line} if line else {}, 1)
        _print_one(ranking, top, again, as_json=as_json, why=why, explain=explain)
        return
    if explain:
        raise UsageError("--explain and --problems exclude each other", "omit one of them", code="conflicting-options")
    if typed.sizes:
        name = as_option(next(iter(typed.sizes)))
        raise UsageError(f"{name} and --problems exclude each other", "omit one of them", code="conflicting-options")
    loaded = wanted.run(chooser, _load(problems, typed, chooser))
    _answer_many(chooser, loaded, wanted, (top, again, require), as_json=as_json)


def _answer_many(
    chooser: Chooser,
    problems: Sequence[Problem],
    wanted: _Measuring,
    options: tuple[int, str, Required | None],
    *,
    as_json: bool,
) -> None:
    """Print the answers of many problems, and the reasons why some have none; it is an error if none has one."""
    from ckh.quick.many import prepared_answers

    top, again, require = options
    known: dict[Problem, Answer] = {}
    if wanted.kernels is None and wanted.rule_set is None and wanted.probe is None and wanted.pads is not False:
        flags = {"stands_in": wanted.stands_in, "uses_probes": wanted.uses_old}
        known = prepared_answers(chooser, problems, top, again, **flags)
    unknown = {problem.canonical(): answer.known.line for problem, answer in known.items() if answer.known.line}
    failures: dict[str, str] = {}
    left = [problem for problem in problems if problem not in known]
    # A part at a time, since a ranking has all kernels; lists of kernels are read once, and all probed together.
    at_once = _AT_ONCE if wanted.kernels is None and wanted.probe is None else max(1, len(left))
    for start in range(0, len(left), at_once):
        for ranking in _answered(chooser, left[start : start + at_once], wanted):
            text = ranking.problem.canonical()
            if require is Required.KNOWN and (line := ranking.known(top).line):
                unknown[text] = line
            if (failure := ranking.failure) is None:
                known[ranking.problem] = ranking.answer(top, again)
            else:
                failures[text] = failure.message
    if require is Required.KNOWN:
        _refuse_unknown(unknown, len(problems))
    answers = [known[problem] for problem in problems if problem in known]
    _print_many(answers, failures, as_json=as_json)
    if not answers:
        first = next(iter(failures.values()))
        raise NoKernelError(f"{len(failures)} of {len(problems)} problems have no kernel; {first}")


def _refuse_unknown(lines: Mapping[str, str], problems: int) -> None:
    """Refuse out-of-distribution answers, given the line on each."""
    if lines:
        problem, line = next(iter(lines.items()))
        count = f"{len(lines)} of {problems} problems, e.g. " if problems > 1 else ""
        hint = "omit --require known, or measure it"
        raise ModelError(f"{count}{problem}: {line}", hint, code="unknown-problem")


def _load(source: str, typed: Typed, chooser: Chooser) -> tuple[Problem, ...]:
    if typed.variant is not None and not chooser.op.has_directions:
        raise UsageError(f"{chooser.op.name} has no directions", "omit --variant", code="inapplicable-option")
    variant = None if typed.variant is None else str(typed.variant)
    return chooser.load_problems(source, variant, typed.dtype)


@dataclass(frozen=True, slots=True)
class _Measuring:
    """Options of probing and of substitute models."""

    probe: int | None  # number of kernels to measure; 0: as many as the answer states
    timeout_s: float
    uses_old: bool
    stands_in: bool
    kernels: str | None
    rule_set: str | None
    pads: bool | None  # None: if no kernel applies

    def run(self, chooser: Chooser, problems: Sequence[Problem]) -> Sequence[Problem]:
        """Pad problems if asked to, saying what that adds."""
        if not self.pads:
            return problems
        padded = [chooser.op.padded(problem) for problem in problems]
        for own, wide in zip(problems, padded, strict=True):
            note_once(f"{own.canonical()} as {wide.canonical()}{added_work(own, wide)}" if own != wide else "")
        return padded


def _probe(text: str) -> int | None:
    if text == AUTO:
        return 0
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--probe {text!r:.40} is not a number of kernels", f"or --probe {AUTO}", code="bad-number")
    return int(text) or None


def _answered(chooser: Chooser, problems: Sequence[Problem], wanted: _Measuring) -> list[Ranking]:
    """Answers in order; kernels measured earlier or now come first."""
    from ckh.learn.answers.listed import limited_to_rule_set
    from ckh.learn.answers.ranking import rankings_of
    from ckh.running.probing import is_known, measured_before, probe_all

    of_model: dict[int, list[Problem]] = {}
    models: dict[int, Model] = {}
    for problem in problems:
        model = chooser.model(problem, stands_in=wanted.stands_in)
        if wanted.rule_set is not None:
            model = limited_to_rule_set(model, wanted.rule_set, problem)
        models[id(model)] = model
        of_model.setdefault(id(model), []).append(problem)
    if wanted.kernels is not None:
        from ckh.bench.planning.registry import limited_models

        models = dict(zip(models, limited_models(wanted.kernels, list(models.values())), strict=True))
    known: dict[Problem, Ranking] = {}
    for key, own_problems in of_model.items():
        rankings = [
            (ranking.unpadded if wanted.pads is False else ranking).buildable_first
            for ranking in rankings_of(own_problems, models[key])
        ]
        if wanted.probe is not None:
            new = [
                ranking
                for ranking in rankings
                if len(ranking.order) and not (wanted.uses_old and is_known(ranking, wanted.probe))
            ]
            if new:
                probe_all(new, wanted.probe, wanted.timeout_s)
        if wanted.probe is not None or wanted.uses_old:
            rankings = [measured_before(ranking) for ranking in rankings]
        known |= dict(zip(own_problems, rankings, strict=True))
    return [known[problem] for problem in problems]


def _print_one(ranking: Ranking, top: int, again: str, *, as_json: bool, why: bool, explain: bool) -> None:
    from ckh.learn.answers.answer_document import answer_json
    from ckh.learn.answers.answer_text import answer_text

    answer, spec = ranking.answer(top, again), ranking.model.spec
    if explain:
        from ckh.learn.answers import explain as explaining

        explanation = explaining.explain(ranking)
        if explanation is not None and ranking.padded is None:
            from ckh.isa.source import of_compiled
            from ckh.isa.text import brief_lines

            anatomy = of_compiled(explanation.first, ranking.problem, spec.arch, explaining.compute_units(ranking))
            explanation = replace(explanation, code=() if anatomy is None else tuple(brief_lines(anatomy)))
        answer = replace(answer, explanation=explanation)
    emit(answer_json(answer) if as_json else answer_text(answer, why=why))


def _print_many(answers: Sequence[Answer], failures: Mapping[str, str], *, as_json: bool) -> None:
    from ckh.learn.answers.answer_document import many_json
    from ckh.learn.answers.answer_text import answers_text

    if as_json:
        for part in many_json(answers, failures):
            emit(part)
        return
    emit(answers_text(answers))
    if failures:
        count = f"{len(failures)} of {len(answers) + len(failures)} problems have no kernel:"
        say("\n" + "\n".join([count, *failures.values()]))

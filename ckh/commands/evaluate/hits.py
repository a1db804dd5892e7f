"""Output of `ckh evaluate` by winners."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.assess.winners import WinnerReport
from ckh.commands._common import print_table, say
from ckh.documents import Document, fields_of
from ckh.learn.judging.judged_data import percent, stands_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ckh.assess.winners import Hits, WinnerChoice
    from ckh.learn.judging.judged_data import Among, StandIn
    from ckh.learn.models.artifact import Model


class EvaluateWinnersDocument(WinnerReport, Document):
    """ckh evaluate --json, of a model of winners."""

    schema = "evaluate_winners"

    stands_in: StandIn | None
    """Substitute model, if there is no model of these problems; otherwise null."""
    among: Among
    """Kernels to choose among: predict's candidates, or the measured kernels alone."""
    figures: Mapping[str, float]
    """Figures by the names that gates use."""
    failures: tuple[str, ...]
    """Failed gates."""


def document(
    result: WinnerReport, model: Model, among: Among, figures: Mapping[str, float], worst: int
) -> EvaluateWinnersDocument:
    """Document of a report, with the `worst` worst choices, or all."""
    outcome = fields_of(result) | {"choices": _worst_first(result)[: worst or None]}
    return EvaluateWinnersDocument(**outcome, stands_in=stands_in(model), among=among, figures=figures, failures=())


def print_report(result: WinnerReport, title: str, worst: int) -> None:
    """Print a report as tables."""
    rows = [_row(item) for item in (result.model, result.baseline) if item is not None]
    print_table(f"{title}: hit rate of the measured winner among the first choices", _columns(""), rows)
    if result.coverage < 1:
        say(f"coverage {percent(result.coverage)}: problems whose winner is a candidate of predict")
        say(f"  refused: {result.refused}; the winner is not a candidate: {result.winner_no_candidate}")
    say("near-ties count as misses: times of the other kernels are unknown")
    bound = result.bound
    if bound.problems:
        others = "" if bound.mean_of_others is None else f", {percent(bound.mean_of_others)} on misses"
        say(
            f"lower bound of efficiency, from times at no fewer rows: {percent(bound.mean)} on {bound.problems} of "
            f"{result.model.problems} problems (P10 {percent(bound.p10)}{others})"
        )
    say()
    print_table("", _columns("slice"), [_row(item) for item in result.slices])
    if worst:
        say()
        lines = [
            [
                winner_choice.problem,
                "-" if winner_choice.place is None else str(winner_choice.place + 1),
                winner_choice.kernel,
                winner_choice.winner,
            ]
            for winner_choice in _worst_first(result)[:worst]
        ]
        print_table("", ("worst choices", "rank of the winner", "chosen", "winner"), lines)


def _columns(name: str) -> tuple[str, ...]:
    from ckh.assess.winners import FIRST

    return (name, "problems", *(f"first {k}" if k > 1 else "first" for k in FIRST))


def _row(hits: Hits) -> list[str]:
    return [hits.name, str(hits.problems), *(percent(share) for share in hits.first.values())]


def _worst_first(result: WinnerReport) -> list[WinnerChoice]:
    from ckh.assess.winners import MISSING

    return sorted(result.choices, key=lambda choice: -(MISSING if choice.place is None else choice.place))

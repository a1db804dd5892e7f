"""Tuned kernels of a model: `ckh.tune`, by what `ckh tune` runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ckh.api.inputs import options_of
from ckh.files.paths import path_of
from ckh.ops import operation
from ckh.shapes.layers import typed as typed_numbers
from ckh.tune.settings import OWN_TABLES, TuneOptions, settings_of
from ckh.tune.tuning import ModelTuning

if TYPE_CHECKING:
    from pathlib import Path

    from ckh.tune.gains import TuneDocument

_LISTS = ("tokens", "batch")


def tune(*sources: Path | str, out: Path | str = "tuned", force: bool = False, **options: Any) -> TuneDocument:
    """Tune the kernels of a model, as `ckh tune` does: shapes, measurements, a model of these, and a table.

    Args:
        sources: shapes, as of `ckh.shapes.read`.
        out: the folder, in which an interrupted tuning goes on.
        force: whether to begin anew in `out`.
        options: options of the command by name, the fields of `ckh.tune.settings.TuneOptions`, e.g. budget="15m",
            to="amd-registry", tp=8, tokens=(1, 4096) or {1: 2000, 8192: 1}, device="host".

    Raises:
        CkhError: an option is wrong, or a step failed; the next call goes on with it.
    """
    typed = {name: typed_numbers(value) if name in _LISTS else value for name, value in options.items()}
    typed |= {name: str(options[name]) for name in ("installed", "today") if options.get(name)}
    (given,) = options_of(typed, TuneOptions)
    wanted = TuneOptions(**given)
    wanted = replace(wanted, op=tuned_operation(wanted.op, wanted.to))
    settings = settings_of([str(path_of(source, "a source")) for source in sources], wanted)
    return ModelTuning(settings, path_of(out, "out"), force=force, is_quiet=True).run()


def tuned_operation(op: str | None, to: str | None) -> str | None:
    """The operation to tune: the named one, else that of the target's tables; None: by its work."""
    from ckh.export.consumers import the_table

    op = None if op is None else operation(op).name
    return the_table(OWN_TABLES, op, "")[0].name if to == OWN_TABLES else op

"""Tuned kernels of a model: `ckh.tune`, by what `ckh tune` runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckh.api.inputs import options_of
from ckh.errors import UsageError
from ckh.tune.settings import TuneOptions, settings_of
from ckh.tune.tuning import ModelTuning

if TYPE_CHECKING:
    from ckh.tune.gains import TuneDocument

_LISTS = ("tokens", "batch")


def tune(*sources: Path | str, out: Path | str = "tuned", force: bool = False, **options: Any) -> TuneDocument:
    """Tune the kernels of a model, as `ckh tune` does: shapes, measurements, a model of these, and a table.

    Args:
        sources: shapes, as of `ckh.shapes.read`.
        out: the folder, in which an interrupted tuning goes on.
        force: whether to begin anew in `out`.
        options: options of the command by name, the fields of `ckh.tune.settings.TuneOptions`, e.g. budget="15m",
            to="amd-registry", tp=8, tokens=(1, 4096), device="host".

    Raises:
        CkhError: an option is wrong, or a step failed; the next call goes on with it.
    """
    if not sources:
        raise UsageError("no source of shapes", "see ckh.shapes.read", code="missing-option")
    typed = {name: _typed(value) if name in _LISTS else value for name, value in options.items()}
    typed |= {"installed": str(options["installed"])} if options.get("installed") else {}
    (given,) = options_of(typed, TuneOptions)
    settings = settings_of([str(source) for source in sources], TuneOptions(**given))
    return ModelTuning(settings, Path(out), force=force, is_quiet=True).run()


def _typed(value: Any) -> str | None:
    """Numbers as they are typed."""
    if value is None or isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else ",".join(map(str, value)) or None

"""Plain `ckh search` calls, answered without the command line's libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ckh.archs import load_arch
from ckh.errors import CkhError
from ckh.search.on_model import search_json, search_model, search_text
from ckh.text.prose import whole_names

if TYPE_CHECKING:
    from ckh.quick.request import Request


def text_of(request: Request) -> str | None:
    """Return the output of `ckh search` for a request; None if the full command is needed, such as for errors."""
    try:
        chooser = request.chooser()
        problem = chooser.problem(request.sizes, request.kind["variant"], "search")
        model = chooser.model(problem)
        model_search = search_model(problem, model, load_arch(model.spec.arch), request.top)
    except CkhError:
        return None
    with whole_names(is_whole="wide" in request.flags):
        return (search_json if "json" in request.flags else search_text)(problem, model, model_search)

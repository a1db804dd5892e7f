"""ckh: finds the fastest Composable Kernel Tile kernel for a grouped-convolution problem.

>>> import ckh
>>> problem = ckh.ConvProblem("forward", n=16, c=256, k=256, g=1, hi=28, wi=28, y=3, x=3, pad_h=1, pad_w=1)
>>> best = ckh.rank(problem, top=1)[0]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ckh.data.dataset import read_dataset
    from ckh.learn.answer import rank, rank_many
    from ckh.learn.artifact import load_model
    from ckh.problems import ConvProblem

__version__ = "0.1.0"
__all__ = ["ConvProblem", "load_model", "rank", "rank_many", "read_dataset"]

# Public name -> its module, imported when it is first used, so that `import ckh` costs nothing.
_HOMES = {
    "ConvProblem": "ckh.problems",
    "load_model": "ckh.learn.artifact",
    "rank": "ckh.learn.answer",
    "rank_many": "ckh.learn.answer",
    "read_dataset": "ckh.data.dataset",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ckh' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)

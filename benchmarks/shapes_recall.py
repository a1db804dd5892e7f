"""Recall of `ckh shapes` for AITER's untuned lists of models, from the models' configurations.

`aiter_untuned.json` has the distinct (N, K) of GEMMs and (model_dim, inter_dim, expert, topk) of mixtures of experts in
lists of ROCm/aiter, `aiter/configs/model_configs` unless another folder is named. A shape is recalled if `ckh shapes`
has it for 1, 2, 4 or 8 ranks, with shared experts either separate or fused with the routed ones.

    python benchmarks/shapes_recall.py
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import ckh.shapes
from ckh.errors import UsageError

LISTS = Path(__file__).parent / "aiter_untuned.json"
RANKS = (1, 2, 4, 8)

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recall:
    """Recall of a list."""

    name: str
    model: str
    wanted: frozenset[Sizes]
    found: frozenset[Sizes]

    @property
    def missing(self) -> list[Sizes]:
        """Missing shapes."""
        return sorted(self.wanted - self.found)


@cache
def shapes_of(model: str) -> frozenset[Sizes]:
    """Sizes of a model's weights, for any number of tokens."""
    sizes: set[Sizes] = set()
    for tp in RANKS:
        for fuse_shared in (False, True):
            try:
                result = ckh.shapes.read(model, tp=tp, tokens=(1,), fuse_shared=fuse_shared)
            except UsageError:  # sizes cannot be divided among the ranks
                continue
            for item in result:
                fields = item.problem.to_dict()
                names = ("n", "k") if "k" in fields else ("model_dim", "inter_dim", "experts", "topk")
                sizes.add(tuple(fields[name] for name in names))
    return frozenset(sizes)


def recalls() -> list[Recall]:
    """Recall of each list."""
    lists = json.loads(LISTS.read_text(encoding="utf-8"))
    result = []
    for name, item in lists.items():
        wanted = frozenset(tuple(sizes) for sizes in item["shapes"])
        result.append(Recall(name, item["model"], wanted, wanted & shapes_of(item["model"])))
    return result


def main() -> None:
    """Print the table."""
    print("| list | model | found | missing |\n|---|---|---|---|")
    every = recalls()
    for recall in every:
        missing = ", ".join("x".join(map(str, sizes)) for sizes in recall.missing)
        print(f"| {recall.name} | {recall.model} | {len(recall.found)} of {len(recall.wanted)} | {missing} |")
    result, wanted = (
        sum(map(len, sizes)) for sizes in zip(*((recall.found, recall.wanted) for recall in every), strict=True)
    )
    whole = sum(not recall.missing for recall in every)
    print(f"\n{result} of {wanted} shapes; {whole} of {len(every)} lists whole")


if __name__ == "__main__":
    main()

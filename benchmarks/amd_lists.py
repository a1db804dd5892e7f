"""Share of each of AMD's kernel lists that ckh reads, in a checkout of Composable Kernel.

    python benchmarks/amd_lists.py path/of/composable_kernel

Instances of the code generator (`dispatcher/codegen`), configurations of the parity tests (`dispatcher/parity`) and of
the tile engine (`tile_engine`). `read` is the number of distinct kernels or combinations of a list, `built` those that
ckh's rules admit on the architecture, of one layout; a list that is refused has its error instead.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ckh.archs import load_arch
from ckh.bench.planning.registry import read_registry
from ckh.errors import CkhError
from ckh.kernels.lists import recognises
from ckh.ops import operation
from ckh.ops.gemm_universal.kernels.problem_rules import GEMM_RULES
from ckh.ops.grouped_conv.kernels.problem_rules import CONV_RULES

RULES: dict[str, Any] = {"grouped_conv": CONV_RULES, "gemm_universal": GEMM_RULES}
FOLDERS = ("dispatcher/codegen", "dispatcher/parity", "tile_engine/ops")
# Folders of the tile engine whose GEMMs are of another operation than gemm_universal.
OPERATIONS = {
    **{name: name for name in ("gemm_multi_d", "gemm_preshuffle", "gemm_streamk")},
    "batched_gemm": "gemm_batched",
    "grouped_gemm": "gemm_grouped",
}


def row(path: Path, name: str, arch: str) -> str:
    """Return the row of a list in the Markdown table."""
    document = json.loads(path.read_text(encoding="utf-8"))
    of_folder = (OPERATIONS[part] for part in path.parts if part in OPERATIONS)
    name_of = "grouped_conv" if "variant" in document else next(of_folder, "gemm_universal")
    spec = load_arch(arch)
    try:
        registry = read_registry(path, operation(name_of))
    except CkhError as error:
        return f"| {name} | refused: {error.message.removeprefix(f'{path}: ')} | 0 | 0 |"
    if registry.product is None:
        listed = len(document.get("instances", document.get("kernels", ())))
        built = sum(not RULES[name_of].of_arch(kernel, spec) for kernel in registry.kernels)
        return f"| {name} | {listed} | {len(registry.kernels)} | {built} |"
    stated = document.get("datatype") or document["trait_config"].get("data_type", {}).get("values", ["fp16"])[0]
    product = registry.product
    table = product.table(spec, *product.groups(stated["a"] if isinstance(stated, dict) else stated)[0])
    return f"| {name} | {product.count} | {product.count} | {len(product.rules.judge(table, spec).passed)} |"


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--arch", default="gfx950")
    chosen = parser.parse_args()
    print(f"| list | entries | read | built on {chosen.arch} |", "|---|---|---|---|", sep="\n")
    for folder in FOLDERS:
        for path in sorted((chosen.checkout / folder).rglob("*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(document, dict) and recognises(document):
                print(row(path, str(path.relative_to(chosen.checkout)), chosen.arch))


if __name__ == "__main__":
    main()

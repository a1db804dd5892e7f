"""Facts of a compiled kernel besides its library: its resources, and the identity of its code.

It is kept with the library in the cache, so that it is there when the library was compiled by an earlier run.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from ckh.schema import Resources

# The compiler's -Rpass-analysis=kernel-resource-usage: a line names a function, the lines after it say what it takes.
_REMARK = re.compile(r"remark:\s+(?P<what>[A-Z][A-Za-z ]+?)(?: \[[^\]]*\])?: (?P<value>\S+)(?: \[-Rpass.*)?$")
FUNCTION_REMARK = "Function Name"
_MOST = {
    "vgprs": ("VGPRs",),
    "agprs": ("AGPRs",),
    "sgprs": ("SGPRs", "TotalSGPRs"),
    "lds_bytes": ("LDS Size",),
    "scratch_bytes": ("ScratchSize",),
    "vgpr_spills": ("VGPRs Spill",),
    "sgpr_spills": ("SGPRs Spill",),
}
_OCCUPANCY = "Occupancy"


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled kernel: what identifies its code, and its resources if the compiler reported them."""

    code_hash: str
    resources: Resources | None


def parse_resources(messages: str, function: str) -> Resources | None:
    """Resources of the functions whose mangled names contain `function`; None if the compiler reported none."""
    takes: list[dict[str, int]] = []
    this: dict[str, int] = {}
    for match in filter(None, map(_REMARK.search, messages.splitlines())):
        if match["what"] == FUNCTION_REMARK:
            this = defaultdict(int)
            if function in match["value"]:
                takes.append(this)
        elif match["value"].isdecimal():
            this[match["what"]] = int(match["value"])
    if not takes:
        return None
    most = {name: max(one[word] for one in takes for word in words) for name, words in _MOST.items()}
    return Resources(**most, occupancy=min(one[_OCCUPANCY] for one in takes))


def binary_from_values(values: dict[str, Any]) -> Binary:
    """Read back what was kept with a library, whose digest was right."""
    resources = values["resources"]
    return Binary(values["code_hash"], None if resources is None else Resources(**resources))

"""A fake HIP compiler and CK Tile headers: sufficient for all of `hip` except real kernels and GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_GROUPED = "ck_tile/ops/grouped_convolution"
_PIPELINES = "ck_tile/ops/gemm/pipeline"
_REMARK = "[-Rpass-analysis=kernel-resource-usage]"

# Format of clang 19's remarks.
_FUNCTION = "_ZN7ck_tile6kentryILi256ELi1ENS_33GroupedConvolutionForwardKernelIiEEEEvT1_"
REMARKS = f"""\
a.cpp:7:0: remark: Function Name: {_FUNCTION} {_REMARK}
a.cpp:7:0: remark:     TotalSGPRs: 40 {_REMARK}
a.cpp:7:0: remark:     VGPRs: 96 {_REMARK}
a.cpp:7:0: remark:     AGPRs: 16 {_REMARK}
a.cpp:7:0: remark:     ScratchSize [bytes/lane]: @scratch@ {_REMARK}
a.cpp:7:0: remark:     Dynamic Stack: False {_REMARK}
a.cpp:7:0: remark:     Occupancy [waves/SIMD]: 4 {_REMARK}
a.cpp:7:0: remark:     SGPRs Spill: 0 {_REMARK}
a.cpp:7:0: remark:     VGPRs Spill: 2 {_REMARK}
a.cpp:7:0: remark:     LDS Size [bytes/block]: 16384 {_REMARK}
"""

# A shell script. It finds the kernels' names in the source, and compiles C with ckh's ABI. Kernels whose names contain
# certain texts do not compile, never finish, or crash when they are loaded; all others differ only in their names. Each
# call that makes a library appends a line with their names to a log.
_SCRIPT = r"""#!/bin/sh
case " $* " in
*" --version "*)
    echo '@version@'
    echo 'AMD clang version 19.0.0git'
    exit 0 ;;
*@refuses@*) exit 1 ;;
*" -fsyntax-only "*) exit 0 ;;
esac
for word; do
    [ "$before" = -o ] && library=$word
    before=$word
done
names=$(sed -n 's/^.*"ckh-kernel:\(.*\)";$/\1/p' "$word")
case $names in
*@fails@*)
    echo "$word:3:1: error: no such thing" >&2
    exit 1 ;;
*@hangs@*)
    exec sleep 1000 ;;
esac
[ "$names" = toolchain ] || echo $names >> "$0.log"
labels= number=0
for name in $names; do
    labels="$labels \"ckh-kernel:$name\"," space=
    [ "$name" = "$names" ] || space=$(printf 'ckh_u%d' $number)
    sed "s/GroupedConvolution/${#space}$space&/" "$0.remarks" >&2
    number=$((number + 1))
done
exec gcc -shared -fPIC -s -Wl,--build-id=none -x c -o "$library" - <<END
#include <stdlib.h>
#include <string.h>
static const char labels[][512] = {$labels};
const volatile struct { char mark[12]; int number; } chosen = {"ckh-chosen:", 0};
const char* ckh_name(void) { return labels[chosen.number] + 11; }
__attribute__((constructor)) static void start(void) { if (strstr(ckh_name(), "@crashes@")) abort(); }
int ckh_abi_version(void) { return 2; }
int ckh_operand_count(void) { return 4; }
const char* ckh_unsupported(const void* p) { return 0; }
long ckh_workspace_bytes(const void* p) { return 0; }
int ckh_run(const void* p, void* const* operands) { return 1; }
int ckh_time(const void* p, void* const* operands, int loops, int samples, double* ns) { return 1; }
END
"""


@dataclass(frozen=True, slots=True)
class FakeHipcc:
    """Behaviour of the compiler.

    `fails`, `hangs` and `crashes` are parts of the names of kernels that do, `refuses` is part of an unknown option.
    """

    version: str = "HIP version: 6.4.1"
    scratch: int = 0
    fails: str = "no kernel"
    hangs: str = "none either"
    crashes: str = "no other"
    refuses: str = "-unknown"

    def write(self, path: Path) -> Path:
        """Write the program."""
        path.parent.mkdir(parents=True, exist_ok=True)
        script = _SCRIPT.replace("@version@", self.version)
        for name in ("fails", "hangs", "crashes", "refuses"):
            text = str(getattr(self, name))
            script = script.replace(f"*@{name}@*", f'*"{text}"*').replace(f"@{name}@", text)
        path.write_text(script, encoding="utf-8")
        path.chmod(0o755)
        Path(f"{path}.remarks").write_text(REMARKS.replace("@scratch@", str(self.scratch)), encoding="utf-8")
        return path


def write_headers(include: Path, utils: str = "struct GroupedConvTraits {};", version: str = "") -> Path:
    """An include folder like CK Tile's of mid-2025, unless `utils` differs."""
    files = {
        f"{_GROUPED}/utils/grouped_convolution_utils.hpp": utils,
        f"{_GROUPED}/kernel/grouped_convolution_forward_kernel.hpp": version,
        f"{_GROUPED}/kernel/grouped_convolution_backward_weight_kernel.hpp": "",
        f"{_PIPELINES}/gemm_pipeline_agmem_bgmem_creg_v1.hpp": "void* p_smem",
        f"{_PIPELINES}/gemm_pipeline_ag_bg_cr_mem.hpp": "void* p_smem",
        f"{_PIPELINES}/gemm_pipeline_ag_bg_cr_comp_v3.hpp": "void* p_smem",
        f"{_PIPELINES}/gemm_pipeline_ag_bg_cr_comp_v4.hpp": "void* p_smem_0, void* p_smem_1",
    }
    for name, text in files.items():
        path = include / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    return include

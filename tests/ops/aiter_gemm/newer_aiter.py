"""A mock of AITER of August 2026 in few lines: its handling of tables that ckh exports.

As in its public sources: a list of files is joined, and a duplicate shape (by the columns of the untuned table) ends
the start and leaves the fastest of its rows in the files (`aiter/jit/core.py`); rows are looked up by architecture,
compute units, M or padded M, N, K and the type of the weights, in the newest version also by the largest M of a layer
(`aiter/ops/gemm_op_a8w8.py`); the generator uses `kernelId` and refuses unknown numbers, for the devices that
AITER_GPU_TARGETS names before those of GPU_ARCHS and CU_NUM (`aiter/jit/utils/build_targets.py`). Rows of mixtures are
looked up for tokens padded up to powers of two or down to a tier, else by a row of another activation that is not CK's,
else by a row of a smaller tier (`aiter/fused_moe.py`).
"""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ckh.cli import run

if TYPE_CHECKING:
    from collections.abc import Mapping

_CORE = """
class AITER_CONFIG:
    def update_config_files(self, file_path, merge_name):
        import pandas as pd
        paths = file_path.split(os.pathsep)
        if len(paths) <= 1:
            return file_path
        frames = [pd.read_csv(path) for path in paths]
        joined = pd.concat(frames, ignore_index=True)
        untuned = pd.read_csv(f"{AITER_ROOT_DIR}/aiter/configs/{merge_name.replace('tuned', 'untuned')}.csv")
        key = [*untuned.columns, "cu_num", "gfx"]
        if joined.duplicated(subset=key).any():
            best = set(joined.sort_values("us", kind="stable").drop_duplicates(subset=key).index)
            start = 0
            for path, frame in zip(paths, frames):
                kept = [number for number in range(len(frame)) if start + number in best]
                start += len(frame)
                if len(kept) < len(frame):
                    frame.iloc[kept].to_csv(path, index=False)
            raise RuntimeError("Found duplicate shape entries")
        os.makedirs("/tmp/aiter_configs", exist_ok=True)
        joined.to_csv(f"/tmp/aiter_configs/{merge_name}.csv", index=False)
        return f"/tmp/aiter_configs/{merge_name}.csv"

    @functools.lru_cache(maxsize=20)
    def get_config_file(self, env_name, default_file, tuned_file_name):
        from pathlib import Path
        named = os.getenv(env_name)
        if named:
            return self.update_config_files(named, tuned_file_name)
        folder = Path(f"{AITER_ROOT_DIR}/aiter/configs/model_configs/")
        more = [str(path) for path in folder.glob(f"*{tuned_file_name}*.csv") if "untuned" not in path.name]
        return self.update_config_files(os.pathsep.join([default_file, *more]), tuned_file_name)
"""
_LOOKUP = """
import torch
_CACHE: dict = {}

@functools.lru_cache(maxsize=1024)
def get_GEMM_config_with_quant_type(M: int, N: int, K: int, q_dtype_w: torch.dtype, tuned_file=None):
    if tuned_file not in _CACHE:
        key = ["gfx", "cu_num", "M", "N", "K", "q_dtype_w"]
        _CACHE[tuned_file] = pd.read_csv(tuned_file).drop_duplicates().set_index(key).to_dict("index")
    for level in (None, 0, 1):
        m = M if level is None else get_padded_m(M, N, K, level)
        found = _CACHE[tuned_file].get((get_gfx(), get_cu_num(), m, N, K, str(q_dtype_w)))
        if found is not None:
            return found
    return None
"""
_LOOKUP_ABOVE = (
    _LOOKUP.replace(
        "    return None\n", "    return _config_for_m_above_table(_CACHE[tuned_file], M, N, K, str(q_dtype_w))\n"
    )
    + """
def _config_for_m_above_table(table, M, N, K, q_dtype_w):
    layer = [key for key in table if (key[0], key[1], *key[3:]) == (get_gfx(), get_cu_num(), N, K, q_dtype_w)]
    largest = max(layer, key=lambda key: key[2], default=None)
    return None if largest is None or M <= largest[2] else table[largest]
"""
)
_GENERATOR = """
import argparse, os
import pandas as pd
from gemm_a8w8_bpreshuffle_common import kernels_list
parser = argparse.ArgumentParser()
parser.add_argument("-w")
parser.add_argument("-f")
args = parser.parse_args()
table = pd.read_csv(args.f)
gfx, cu_num = os.environ.get("AITER_GPU_TARGETS", f'{os.environ["GPU_ARCHS"]}:{os.environ["CU_NUM"]}').split(":")
table = table[(table.gfx == gfx) & (table.cu_num == int(cu_num))]
table = table[table.libtype == "ck"]
lines = []
for row in table.itertuples():
    if row.kernelId not in kernels_list:
        raise RuntimeError(f"kernelId={row.kernelId} not in kernels_list")
    key = f'{{"{row.gfx}", {row.cu_num}, {row.M}, {row.N}, {row.K}}}'
    lines.append(f"{{{key}, {kernels_list[row.kernelId].name}<DTYPE, ETYPE>}},")
with open(os.path.join(args.w, "gemm_lookup.h"), "w") as file:
    file.write("\\n".join(lines))
"""
_LIST = "class K:\n    def __init__(self, name):\n        self.name = name\n\nkernels_list = {}\n"
_MIXTURES = """
import torch
_ACT_TYPE_DISABLED_KEY = "any"
_PADDED_M_TIERS = [32768, 131072]
cfg_2stages = None

def nextPow2(n):
    return 1 << (n - 1).bit_length()

def get_padded_M(M):
    below = [tier for tier in _PADDED_M_TIERS if tier <= M]
    return below[-1] if below else nextPow2(M)

@functools.lru_cache(maxsize=2048)
def get_2stage_cfgs(
    token, model_dim, inter_dim, expert, topk, dtype, q_dtype_a, q_dtype_w, q_type, use_g1u1, activation,
    doweight_stage1, gate_mode=GateMode.SEPARATED, config_file=None,
):
    _INDEX_COLS = ["gfx", "cu_num", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "dtype",
                   "q_dtype_a", "q_dtype_w", "q_type", "use_g1u1", "doweight_stage1"]
    if config_file is not None:
        _INDEX_COLS.append("gate_mode")

    def get_cfg_2stages(tune_file):
        import pandas as pd
        rows = pd.read_csv(tune_file)
        if config_file is not None:
            return rows.set_index(_INDEX_COLS).to_dict("index"), {}
        others = rows[~rows.kernelName1.str.contains("moe_ck2stages")].assign(act_type=_ACT_TYPE_DISABLED_KEY)
        others = others.drop_duplicates(subset=_INDEX_COLS)
        return tuple(one.set_index(_INDEX_COLS).to_dict("index") for one in (rows, others))

    global cfg_2stages
    if cfg_2stages is None:
        cfg_2stages = get_cfg_2stages(AITER_CONFIGS.AITER_CONFIG_FMOE_FILE)
    active_cfg_2stages = cfg_2stages
    gfx = get_gfx_runtime()
    cu_num = get_cu_num()
    rest = (str(dtype), str(q_dtype_a), str(q_dtype_w), str(q_type), use_g1u1, doweight_stage1)

    def _lookup_cfg(both):
        tiers = _PADDED_M_TIERS[:_PADDED_M_TIERS.index(token)] if token in _PADDED_M_TIERS else []
        for tokens in (token, *reversed(tiers)):
            for table, act in zip(both, (str(activation), _ACT_TYPE_DISABLED_KEY)):
                found = table.get((gfx, cu_num, tokens, model_dim, inter_dim, expert, topk, act, *rest))
                if found is not None:
                    return found
        return None

    cfg = _lookup_cfg(active_cfg_2stages)
    if cfg is None:
        cfg = torch.nothing
    return cfg
"""
FAST = "a8w8_bpreshuffle_256x16x64x512_16x16_16x16_32x8x1_32x8x1_1x16x1x16_4x4x1_1x1_intrawave_v1"
SMALL = "a8w8_bpreshuffle_128x16x32x512_16x16_16x16_32x4x1_32x4x1_1x16x1x8_4x4x1_1x1_intrawave_v1"
# AITER's generators of kernels: the folder of that name in its source distribution, on PYTHONPATH.
_META = importlib.util.find_spec("aiter_meta")
AITER = None if _META is None else Path(next(iter(_META.submodule_search_locations or [])))
needs_aiter = pytest.mark.skipif(
    AITER is None, reason="AITER's source is absent: unpack amd-aiter's, and put it on PYTHONPATH"
)
HEAD = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
FP8 = "torch.float8_e4m3fn"


def export(problems: Path, out: Path, *args: str, arch: str = "gfx950") -> int:
    """Run the export command."""
    return run(["export", "--to", "aiter", "--arch", arch, "--problems", str(problems), "--out", str(out), *args])


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a table by column."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def table_row(m: int, name: str, number: int, us: float, library: str = "ck") -> str:
    """Return a row of AITER's own table, of one layer on gfx950."""
    return f"gfx950,256,{m},9216,4096,{FP8},{library},{number},0,{us},{name},0,0,0.0\n"


def write_aiter(folder: Path, kernels: Mapping[int, str], base: str, model: str, *, newest: bool = False) -> Path:
    """Write an AITER that builds these kernels and has these rows of its own.

    Args:
        folder: the folder to write to.
        kernels: names by number.
        base: rows of its own table.
        model: rows of a model's table.
        newest: whether shapes above a layer's largest M are looked up too.
    """
    texts = {
        "aiter/jit/core.py": _CORE,
        "aiter/ops/gemm_op_a8w8.py": _LOOKUP_ABOVE if newest else _LOOKUP,
        "csrc/ck_gemm_a8w8_bpreshuffle/gen_instances.py": _GENERATOR,
        "csrc/ck_gemm_a8w8_bpreshuffle/gemm_a8w8_bpreshuffle_common.py": _LIST
        + "".join(f"kernels_list[{number}] = K({name!r})\n" for number, name in kernels.items()),
        "aiter/configs/a8w8_bpreshuffle_tuned_gemm.csv": HEAD + base,
        "aiter/configs/model_configs/a8w8_bpreshuffle_tuned_gemm_dsv3.csv": HEAD + model,
        "aiter/configs/a8w8_bpreshuffle_untuned_gemm.csv": "M,N,K,q_dtype_w\n",
        "aiter/configs/model_configs/a8w8_bpreshuffle_untuned_gemm_dsv3.csv": "M,N,K\n1,2,3\n",
    }
    return _written(folder, texts)


def write_aiter_of_mixtures(folder: Path, generator: str, table: str) -> Path:
    """Write an AITER with a generator of kernels for mixtures of experts, and this table of its own."""
    texts = {
        "aiter/jit/core.py": _CORE,
        "aiter/fused_moe.py": _MIXTURES,
        "csrc/ck_gemm_moe_2stages_codegen/gen_instances.py": generator,
        "aiter/configs/tuned_fmoe.csv": table,
    }
    return _written(folder, texts)


def _written(folder: Path, texts: Mapping[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder

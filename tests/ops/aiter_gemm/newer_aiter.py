"""A stand-in for AITER of August 2026, in few lines: what its code does with tables that ckh exports.

As in its public sources: a list of files is joined, and a shape that stands twice ends the start and rewrites the
files (`aiter/jit/core.py`); rows are found by architecture, compute units, M or M padded, N, K and the type of the
weights (`aiter/ops/gemm_op_a8w8.py`); the generator goes by `kernelId` and refuses numbers that it does not have.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CORE = """
class AITER_CONFIG:
    def update_config_files(self, file_path, merge_name):
        import pandas as pd
        paths = file_path.split(os.pathsep)
        if len(paths) <= 1:
            return file_path
        frames = [pd.read_csv(path) for path in paths]
        joined = pd.concat(frames, ignore_index=True)
        key = ["gfx", "cu_num", "M", "N", "K", "q_dtype_w"]
        if joined.duplicated(subset=key).any():
            for path, frame in zip(paths, frames):
                frame.head(1).to_csv(path, index=False)
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
_GENERATOR = """
import argparse, os
import pandas as pd
from gemm_a8w8_bpreshuffle_common import kernels_list
parser = argparse.ArgumentParser()
parser.add_argument("-w")
parser.add_argument("-f")
args = parser.parse_args()
table = pd.read_csv(args.f)
table = table[(table.gfx == os.environ["GPU_ARCHS"]) & (table.cu_num == int(os.environ["CU_NUM"]))]
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
HEAD = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
FP8 = "torch.float8_e4m3fn"


def table_row(m: int, name: str, number: int, us: float, library: str = "ck") -> str:
    """A row of AITER's own table, of one layer on gfx950."""
    return f"gfx950,256,{m},9216,4096,{FP8},{library},{number},0,{us},{name},0,0,0.0\n"


def write_aiter(folder: Path, kernels: Mapping[int, str], base: str, model: str) -> Path:
    """An AITER that builds these kernels and has these rows of its own."""
    texts = {
        "aiter/jit/core.py": _CORE,
        "aiter/ops/gemm_op_a8w8.py": _LOOKUP,
        "csrc/ck_gemm_a8w8_bpreshuffle/gen_instances.py": _GENERATOR,
        "csrc/ck_gemm_a8w8_bpreshuffle/gemm_a8w8_bpreshuffle_common.py": _LIST
        + "".join(f"kernels_list[{number}] = K({name!r})\n" for number, name in kernels.items()),
        "aiter/configs/a8w8_bpreshuffle_tuned_gemm.csv": HEAD + base,
        "aiter/configs/model_configs/a8w8_bpreshuffle_tuned_gemm_dsv3.csv": HEAD + model,
        "aiter/configs/model_configs/a8w8_bpreshuffle_untuned_gemm_dsv3.csv": "M,N,K\n1,2,3\n",
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder

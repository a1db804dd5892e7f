"""Converts tables that were collected from public repositories to datasets, such as those of data/.

    python benchmarks/collected.py aiter_gemm_tuned.parquet OUT.parquet
    python benchmarks/collected.py fbgemm_ck_lookup_gfx942.parquet OUT.parquet [--arch gfx942]
    python benchmarks/collected.py FOLDER data/aiter-gemm-libraries-gfx950.parquet

Nobody but the collector has such files, so that `ckh convert` does not read them. A folder has fp8 block-scaled GEMMs
for which all kernels of CK and CK Tile were measured, without split-K (`fp8_blockscale_gfx950` in the names of the
files): all times, with ASM's, the best of each library, or the winner. Three kinds of files are told by columns: rows
of AITER's tuned GEMM tables, with the family of the table; kernels that FBGEMM's dispatch names for shapes, winners of
third-party tunings without times, of which the last one is used; and all measurements of AITER's tunings of mixtures of
experts.

A row of the latter is a kernel for one of the two products. Repeated measurements of a kernel for a problem in one run
of the tuner become one row with the median. Choices for both products are rows too: all pairs of kernels whose tiles
have the same number of rows, with the sum of the two times. Times of different runs are never compared: of two runs
that measured a problem, the run with more kernels is used, or the later one.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ckh.data.conversion import convert
from ckh.data.dataset import save_blocks
from ckh.data.formats import Reading, ReadOptions
from ckh.data.merge import merge
from ckh.data.readers.cells import source_of_file
from ckh.data.rows import Origin, Pairs, Results, build_table
from ckh.data.spool import store
from ckh.errors import CkhError, DataError, UsageError
from ckh.files.account import Account
from ckh.ops.aiter.devices import compute_units
from ckh.ops.aiter.tables import OTHER_ARCH, US_PER_MS, is_refused
from ckh.ops.aiter_gemm.kernel import OF_FBGEMM, kernel_pool, parse_kernel, resolved
from ckh.ops.aiter_gemm.problem import ANY, ASM, CK, CKTILE, FAMILIES, AiterGemm
from ckh.ops.aiter_gemm.tuned import CSV
from ckh.ops.aiter_moe.kernel import MoeChoice, joint, known_name, parse_choice
from ckh.ops.aiter_moe.operation import QUANT_NAMES
from ckh.ops.aiter_moe.problem import BOTH, STAGE1, STAGE2, AiterMoe
from ckh.ops.aiter_moe.tuned import MOST_WRONG
from ckh.problems import dtype_name
from ckh.schema import Status

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from ckh.ops.aiter_gemm.kernel import AiterKernel

# Reasons why rows are skipped.
FOREIGN = "of a library other than Composable Kernel"
FAILED = "of a kernel that failed or was wrong"
BAD_ROW = "with a size or name that is impossible"
WEIGHTED = "with the router's weights in the first product, by kernels that ckh does not rank"
OTHER_KIND = "of a kind of GEMM that ckh does not know"
REPLACED = "of a kernel that a later version of FBGEMM replaced"

ARCHS = ("gfx942", "gfx950")  # of AITER's tables
ARCH, GPU = "gfx942", "MI300X"  # of FBGEMM's tables, according to the pull requests that added them
KEY = ("family", "gfx", "cu_num", "M", "N", "K", "q_dtype_w")
LEFT = ["family", "stem", "number", "has_split", "again", "last", "path", "library", "at_head", "gfx_stated"]
# Share of splits among winners that fill the device, from which on splits had no effect: some versions of AITER tried
# splits that no kernel got (pull requests 2335, 2541 and 4448 of ROCm/aiter), and equal kernels won by chance.
IDLE = 0.5
MERGED = 0.01  # share of winners below which a library was not tried: 3 of 5,213 are CK Tile's in one table
# Columns of AITER's tables, and the date of the commit, by which lists of kernels are told.
RENAMED = {"cus": "cu_num", "kernel": "kernelName", "split_k": "splitK", "time_us": "us", "first": "date"}
RENAMED |= {"err_ratio": "errRatio"}
FIELDS = {"cus": "num_cus", "token": "tokens", "expert": "experts", "q_dtype_a": "dtype", "q_type": "quant"}
FIELDS |= {"act_type": "activation"}
# What a table of one tuner's run on an MI300 does not state; its compute units are those of an MI300X.
ONE_RUN: dict[str, Any] = {"gfx": ARCH, "cus": 304, "blob": "", "date": "2026-01"}
IDENTITY = ("cus", "stage", "token", "model_dim", "inter_dim", "expert", "topk", "act_type", "q_dtype_a", "q_type")
QUANTS = {name: quant for quant, name in QUANT_NAMES.items()}


def convert_gemms(path: Path, out: Path, options: ReadOptions) -> None:
    """Convert rows of AITER's tuned GEMM tables, each commit of a table as a table of its own.

    Times of tables do not compare, and each tuner tried something else. Of tables with the same winner of a shape, the
    last is used, or the last that tried splits. Splits of tables in which they had no effect are not kept. Rows of a
    library with hardly any winner in a table are of another run, whose rows were added: a table of their own.
    """
    frame = pd.read_parquet(path).rename(columns=RENAMED)
    others = {kernel.base for family in FAMILIES for arch in ARCHS for kernel in kernel_pool(family, ANY, arch)}
    is_known = frame["family"].isin(FAMILIES) & (frame["library"].isin((CK, CKTILE)) | frame["kernelName"].isin(others))
    frame = frame[is_known & ((frame["gfx"] == options.arch) | (options.arch is None))].reset_index(drop=True)
    frame["stem"] = frame["path"].map(lambda text: PurePath(text).stem)
    number = frame.groupby(["family", "gfx", "cu_num", "stem", "date"], dropna=False).ngroup()
    of_library = frame.groupby([number, frame["library"]])["M"].transform("size")
    is_merged = of_library < MERGED * frame.groupby(number)["M"].transform("size")
    is_kept = ~is_merged | frame["kernelName"].map(resolved).isin(others)  # a table needs a kernel of the lists
    frame, number = frame[is_kept], number.where(~is_merged, number.max() + 1 + number)[is_kept]
    fills = np.array([_fills(row) for row in frame.to_dict("records")]) & (frame["library"] == CK)
    idle = (frame["splitK"] > 0)[fills].groupby(number[fills]).mean()
    is_own = frame["library"].isin((CK, CKTILE))
    frame.loc[number.isin(idle.index[idle >= IDLE]) & is_own, "splitK"] = 0
    has_split = ((frame["splitK"] > 0) & is_own).groupby(number).transform("any")
    frame = frame.assign(number=number, has_split=has_split).sort_values(["has_split", "last"], kind="stable")
    frame = frame.drop_duplicates([*KEY, "kernelName", "splitK"], keep="last")
    frame["again"] = frame.groupby([*KEY, "number"], dropna=False).cumcount()  # other winners in one table
    with TemporaryDirectory() as work:
        tables = []
        for (number, again), rows in frame.groupby(["number", "again"]):
            family, stem, first = rows.iloc[0][["family", "stem", "date"]]
            of_family = "" if family in stem else f"{family}_"
            tables.append(Path(work) / f"{of_family}{stem}_{first}_{number}{f'_{again}' * bool(again)}.csv")
            rows.drop(columns=LEFT).dropna(axis="columns", how="all").to_csv(tables[-1], index=False)
        convert(tables, out, replace(options, peak_check=False), format_name=CSV)


def _fills(row: Mapping[Any, Any]) -> bool:
    """True if a row's kernel has an output tile for each compute unit, so that a split gains nothing."""
    try:
        kernel = parse_kernel(resolved(row["kernelName"]))
    except DataError:
        return False
    return bool(-(-row["M"] // kernel.tile_m) * -(-row["N"] // kernel.tile_n) >= row["cu_num"])


def read_fbgemm(path: Path, options: ReadOptions) -> Reading:
    """Read the kernel that FBGEMM last named for each shape."""
    frame = pd.read_parquet(path).sort_values("last", kind="stable")
    if (options.arch or ARCH) != ARCH:
        raise DataError(f"{path}: all rows are {OTHER_ARCH}: they are of {ARCH}", code="empty")
    left_out: Counter[str] = Counter()
    won: dict[AiterGemm, AiterKernel] = {}
    num_cus = compute_units(0, GPU)
    for row in frame.to_dict("records"):
        if row["op"] not in OF_FBGEMM:
            left_out[OTHER_KIND] += 1
            continue
        groups = row.get("groups")
        try:
            kernel = parse_kernel(str(row["kernel"]))
            m, n, k = (int(row[name]) for name in "mnk")
            dtype, count = FAMILIES[kernel.family][0], 0 if pd.isna(groups) else int(groups)
            problem = AiterGemm(m, n, k, kernel.family, dtype, num_cus=num_cus, groups=count)
        except CkhError:
            left_out[BAD_ROW] += 1
            continue
        left_out[REPLACED] += problem in won
        won[problem] = kernel
    if not won:
        raise DataError(f"{path}: no row is of {', '.join(OF_FBGEMM)}", code="empty")
    results = Results([str(Status.CHOSEN)] * len(won), np.full(len(won), np.nan), {})
    table = build_table(Pairs.of(won.items(), "aiter_gemm"), results, Origin.on_gpu(ARCH, num_cus, path.name))
    account = Account(used=len(won), known=+left_out)
    return Reading(store([table], options.output), (source_of_file(path, "fbgemm"),), account=account)


def library_times(folder: Path) -> dict[AiterGemm, dict[str, float]]:
    """Return the known microseconds by kernel; of sources of one problem the one that has the most, for one session."""
    name: dict[tuple[str, int], str] = {}
    times: dict[AiterGemm, dict[str, float]] = {}

    def add(rows: Mapping[Any, Any], known: Mapping[str, float]) -> None:
        m, n, k = (int(rows[name]) for name in "mnk")
        times.setdefault(AiterGemm(m, n, k, "a8w8_blockscale_bpreshuffle", num_cus=256), dict(known))

    for path in sorted(folder.glob("ck_gemm_fp8_blockscale_gfx950_*.parquet")):
        frame = pd.read_parquet(path)
        frame = frame[frame["library"].isin((CK, CKTILE, ASM))].assign(name=frame["kernel"])
        if "split_k" in frame:
            split = frame["kernel"] + "_splitk" + frame["split_k"].astype(str)
            frame["name"] = frame["kernel"].where(frame["library"] != ASM, split)
        name |= dict(zip(zip(frame["library"], frame["kernel_id"], strict=True), frame["kernel"], strict=True))
        for sizes, part in frame[frame["all_candidates"] & frame["us"].notna()].groupby(list("mnk")):
            add(dict(zip("mnk", sizes, strict=True)), dict(zip(part["name"], part["us"], strict=True)))
    for row in pd.read_csv(folder / "library_best_fp8_blockscale_gfx950.csv").to_dict("records"):
        add(row, {name[library, row[f"{library}_kernel"]]: row[f"{library}_us"] for library in (CK, CKTILE)})
    for row in pd.read_csv(folder / "library_winner_fp8_blockscale_gfx950_m_le_512.csv").to_dict("records"):
        add(row, {name[row["library"], row["kernel_id"]]: row["us"]})
    return times


def read_libraries(folder: Path, options: ReadOptions) -> Reading:
    """Read the times of both libraries' kernels."""
    times = library_times(folder)
    rows = {(problem, parse_kernel(name)): us for problem, of in times.items() for name, us in of.items()}
    latency_ms = np.array(list(rows.values())) / US_PER_MS
    results = Results([str(Status.OK)] * len(rows), latency_ms, {})
    table = build_table(Pairs.of(rows, "aiter_gemm"), results, Origin.on_gpu("gfx950", 256, "fp8_blockscale_gfx950"))
    source = source_of_file(next(folder.glob("library_best_*.csv")), "aiter-gemm-libraries")
    return Reading(store([table], options.output), (source,), account=Account(used=len(rows)))


class _Time(NamedTuple):
    """The time of a choice: its median in ms, its relative spread, and the number of measurements."""

    latency_ms: float
    spread: float
    samples: int


_Times = dict[AiterMoe, dict[MoeChoice, _Time]]


def read_mixtures(path: Path, options: ReadOptions) -> Reading:
    """Read the measurements of all kernels."""
    frame = pd.read_parquet(path)
    if "kernel_type" in frame:
        names = {"kernel_type": "library", "kernel_name": "kernel"}
        frame = frame[frame["ok"]].rename(columns=names).assign(**ONE_RUN)
    left_out: Counter[str] = Counter()
    for reason, bad in (
        (FOREIGN, ~frame["library"].isin(("ck", "cktile"))),
        (OTHER_ARCH, frame["gfx"] != options.arch if options.arch else frame["gfx"] != frame["gfx"]),
        (FAILED, ~(frame["time_us"] > 0) | _is_wrong(frame)),
        (WEIGHTED, frame.get("doweight_stage1", frame["time_us"] * 0).fillna(0) != 0),
    ):
        if count := int(bad.loc[frame.index].sum()):
            left_out[reason] += count
        frame = frame[~bad.loc[frame.index]]
    tables = []
    for (arch, num_cus), part in frame.groupby(["gfx", "cus"]):
        measured: _Times = {}
        # Of runs that measured the same problem, the one with more measurements, then the later one, is kept.
        for run in sorted(
            (run for _, run in part.groupby("blob")), key=lambda run: (len(run), max(map(str, run["date"])))
        ):
            measured |= _run(run, left_out)
        if measured:
            tables.append(_table(str(arch), int(str(num_cus)), measured, path.name))
    if not tables:
        raise DataError(f"{path}: no usable row", code="empty")
    account = Account(used=len(frame), known=left_out)
    return Reading(store(tables, options.output), (source_of_file(path, "aiter-moe"),), account=account)


def _is_wrong(frame: pd.DataFrame) -> pd.Series[bool]:
    """Mask of rows whose results differ from AITER's reference by more than its tuner accepts."""
    if "error_share" in frame:
        return frame["error_share"] > MOST_WRONG
    shares = frame["err_ratio"] if "err_ratio" in frame else pd.Series("", frame.index)
    return shares.astype(str).map(lambda share: is_refused(share, MOST_WRONG))


def _run(frame: pd.DataFrame, left_out: Counter[str]) -> _Times:
    """Return the times of one run of the tuner."""
    samples: dict[AiterMoe, dict[MoeChoice, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in frame.to_dict("records"):
        try:
            problem = problem_of_candidate(row)
            choice = parse_choice(known_name(str(row["kernel"]), str(row["gfx"]), problem))
        except (DataError, UsageError, KeyError):
            left_out[BAD_ROW] += 1
            continue
        samples[problem][choice].append(float(row["time_us"]) / US_PER_MS)
    measured: _Times = defaultdict(dict)
    for problem, choices in samples.items():
        for choice, times in choices.items():
            middle = float(np.median(times))
            spread = float(np.median(np.abs(np.array(times) - middle))) / middle if len(times) > 1 else float("nan")
            measured[problem][choice] = _Time(middle, spread, len(times))
    return {**measured, **dict(_joint(measured))}


def problem_of_candidate(row: Mapping[Any, Any]) -> AiterMoe:
    """Return the problem of a row of collected tunings."""
    given: dict[str, Any] = {FIELDS.get(name, name): row[name] for name in IDENTITY}
    sizes = ("num_cus", "tokens", "model_dim", "inter_dim", "experts", "topk")
    given |= {name: int(given[name]) for name in sizes}
    given["dtype"] = dtype_name(str(given["dtype"]))
    given["quant"] = QUANTS[str(given["quant"]).removeprefix("QuantType.")]
    given["activation"] = str(given["activation"]).removeprefix("ActivationType.").lower()
    return AiterMoe(**given)


def _joint(measured: _Times) -> Iterator[tuple[AiterMoe, dict[MoeChoice, _Time]]]:
    """Yield the choices for both products, for problems whose two products were measured."""
    for problem, firsts in measured.items():
        seconds = measured.get(replace(problem, stage=STAGE2), {})
        if problem.stage != STAGE1:
            continue
        pairs = {
            parse_choice(joint(first.name, second.name)): _sum(firsts[first], seconds[second])
            for first in firsts
            for second in seconds
            if first.block_m == second.block_m
        }
        if pairs:
            yield replace(problem, stage=BOTH), pairs


def _sum(first: _Time, second: _Time) -> _Time:
    total = first.latency_ms + second.latency_ms
    spread = (first.spread * first.latency_ms + second.spread * second.latency_ms) / total
    return _Time(total, spread, min(first.samples, second.samples))


def _table(arch: str, num_cus: int, measured: _Times, run_id: str) -> pa.Table:
    rows = {(problem, choice): timed for problem, times in measured.items() for choice, timed in times.items()}
    latency_ms, spread, samples = map(np.array, zip(*rows.values(), strict=True))
    results = Results([str(Status.OK)] * len(rows), latency_ms, {"spread": spread, "samples": samples})
    return build_table(Pairs.of(rows, "aiter_moe"), results, Origin.on_gpu(arch, num_cus, run_id))


def converted(path: Path, out: Path, options: ReadOptions) -> dict[str, int]:
    """Convert a collected table; return how many rows were left out, by reason."""
    names = set() if path.is_dir() else set(pd.read_parquet(path).columns)
    if "family" in names:
        convert_gemms(path, out, options)
        return {}
    read = read_libraries if path.is_dir() else read_fbgemm if "op" in names else read_mixtures
    reading = read(path, replace(options, output=out))
    merged = merge([reading], output=out)
    save_blocks(out, merged.op, merged.blocks(), merged.metadata, merged.content_hash)
    return reading.account.left_out


def main() -> None:
    """Convert the given table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--arch")
    given = parser.parse_args()
    for reason, count in converted(given.source, given.out, ReadOptions(arch=given.arch)).items():
        print(f"{count} rows left out {reason}")


if __name__ == "__main__":
    main()

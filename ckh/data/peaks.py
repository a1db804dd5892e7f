"""Check of times against the peak rates of their GPU.

A time is impossible if a GPU of its architecture would have to exceed its peak rate of operations, the rate of its L2,
which all tensors pass (`Peaks.l2_bytes_per_clock` of each CU and clock; those of CDNA 3 and 4 read 2 KB per clock and
die, no more than that), or its memory bandwidth, for the bytes beyond the capacity of all of its caches: the others may
stay there between runs. Operations and bytes that a kernel may leave out do not count (`Training.needed`).

GPUs run above their nominal clock at times, hence `MOST`. Of AMD's times that ship, 17 are above it: six stand for an
unknown time with 1 us, and eleven say 80 compute units but were measured on a larger GPU (tests/data/test_peaks.py).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ckh.archs import load_arch
from ckh.data.numbering import first_rows, group_numbers
from ckh.data.tables import plain
from ckh.errors import DataError
from ckh.ops import operation_of
from ckh.text.log import warn

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from ckh.data.dataset import Dataset
    from ckh.data.spool import StoredRows
    from ckh.ops.base import AnyOperation

MOST = 1.2
ABOVE = f"with a time above {MOST} times the peak of its GPU"
_MOST_LEFT_OUT = 0.1  # of the times; above, all are doubtful: a wrong unit or architecture
_DEVICE_SIZE = "num_cus"  # identity column of operations whose problems state the device
_RATES = ("latency_ms", "tflops", "bandwidth_gb_s")
_UNITS = ("TFLOPS", "GB/s", "GB/s of memory")  # of the rates that are compared
_PER_KB, _GB_S = 1024, 1e9


def of_peak(frame: pd.DataFrame, op: AnyOperation) -> NDArray[np.float64]:
    """Share of its GPU's peak rates that each time needs, 0 without a time or with unknown peaks; shape (rows,)."""
    rates, peaks = _rates(frame, op)
    return np.asarray(np.nan_to_num(np.max(rates / peaks, axis=0)))


def _rates(frame: pd.DataFrame, op: AnyOperation) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rates that each time needs, in `_UNITS`, and their peaks; both of shape (3, rows)."""
    keys = _keys(op)
    numbers = group_numbers(frame, keys)
    kinds = frame.iloc[first_rows(numbers)][list(keys)].itertuples(index=False, name=None)
    tflops, cached, memory, caches = np.array([_limits(*kind) for kind in kinds]).reshape(-1, 4)[numbers].T
    ms, rate, gb_s = (frame[name].to_numpy(dtype=np.float64) for name in _RATES)
    work, moved = op.training.needed(frame)
    from_memory = np.maximum(gb_s * moved - caches / ms, 0)
    return np.array([rate * work, gb_s * moved, from_memory]), np.array([tflops, cached, memory])


@lru_cache(maxsize=1 << 12)
def least_ms(name: str, arch: str, hw_num_cus: int) -> float:
    """Time of a problem, given its canonical name, at the peak rates of a GPU; 0 if unknown."""
    if load_arch(arch).peaks is None:
        return 0.0
    import pandas as pd

    op = operation_of(name)
    problem = op.problems.parse(name)
    rates = {"latency_ms": [1.0], "tflops": [problem.flops / 1e9], "bandwidth_gb_s": [problem.bytes / 1e6]}
    frame = pd.DataFrame({**op.problems.columns([problem]), "arch": arch, "hw_num_cus": hw_num_cus, **rates})
    return float(of_peak(frame, op)[0])


def columns_of(op: AnyOperation) -> tuple[str, ...]:
    """Columns that `of_peak` reads."""
    return tuple(dict.fromkeys((*_keys(op), *_RATES, *op.training.needed_columns)))


def _keys(op: AnyOperation) -> tuple[str, ...]:
    stated = (_DEVICE_SIZE,) if _DEVICE_SIZE in op.problems.identity else ()
    return ("arch", "dtype", "hw_num_cus", *stated)


def _limits(arch: str, dtype: str, hw_num_cus: float, num_cus: float = 0) -> tuple[float, float, float, float]:
    """Limits of a kind of rows: TFLOPS, GB/s of the L2, GB/s of memory, and MB of caches, in units of GB/s times ms.

    Rows of an architecture's default profile do not name their GPU: it may be the largest.
    """
    spec = load_arch(arch)
    if spec.peaks is None:
        return np.inf, np.inf, np.inf, 0.0
    hardware = spec.hardware
    units = num_cus or (hw_num_cus if hw_num_cus > 0 and hw_num_cus != hardware.num_cus else spec.largest_gpu)
    cached = spec.peaks.l2_bytes_per_clock * units * hardware.max_clock_mhz * 1e6 / _GB_S
    caches = (hardware.l2_cache_kb * hardware.num_xcd + hardware.l3_cache_kb) * _PER_KB / 1e6
    return spec.peak_tflops(dtype, units), cached, spec.peaks.bandwidth_gb_s, caches


class Impossible:
    """Count of the impossible times of an input, and the worst of them."""

    def __init__(self) -> None:
        self.timed = self.count = 0
        self._worst, self._rate, self._arch = 0.0, "", ""

    def among(self, frame: pd.DataFrame, op: AnyOperation) -> NDArray[np.bool_]:
        """Mask of the rows with an impossible time, which are counted."""
        rates, peaks = _rates(frame, op)
        shares = np.nan_to_num(rates / peaks)
        mask = np.asarray(shares.max(axis=0) > MOST)
        self.timed += int((frame["latency_ms"] > 0).sum())
        self.count += int(mask.sum())
        if mask.any() and shares.max() > self._worst:
            kind, row = np.unravel_index(int(shares.argmax()), shares.shape)
            self._worst, self._rate = float(shares.max()), f"{rates[kind, row]:,.0f} {_UNITS[kind]}"
            self._arch = str(frame["arch"].iloc[row])
        return mask

    def refuse_many(self, where: str) -> None:
        """Refuse an input of which more than a tenth of the times are impossible."""
        if self.count > _MOST_LEFT_OUT * self.timed:
            raise DataError(
                f"{where}: {self._rate} are {self._worst:.3g} times the peak of {self._arch}: are the times in ms? "
                f"{self.count} of {self.timed} are impossible",
                "correct their unit or the architecture; --no-peak-check takes them as they are",
                code="impossible-time",
            )


def drop_impossible(rows: StoredRows, op: AnyOperation, where: str) -> int:
    """Drop the rows of an input with impossible times; returns their number."""
    counted, dropped = Impossible(), [np.zeros(0, dtype=np.int64)]
    for start, table in rows.all_blocks(columns_of(op)):
        numbers = np.flatnonzero(rows.kept(start, len(table)))
        kept = plain(table if len(numbers) == len(table) else table.take(numbers)).to_pandas()
        dropped.append(start + numbers[counted.among(kept, op)])
    counted.refuse_many(where)
    rows.drop(np.concatenate(dropped))
    return counted.count


def possible_rows(dataset: Dataset, where: str) -> Dataset:
    """Select the rows without impossible times, with a warning of the others."""
    counted = Impossible()
    mask = counted.among(dataset.frame, dataset.op)
    counted.refuse_many(where)
    if counted.count:
        warn(f"{where}: left out {counted.count} rows {ABOVE}", "left-out")
    return dataset.select(~mask)

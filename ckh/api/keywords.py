"""Keyword options of `ckh.bench` and `ckh.train` for type checkers; a test holds them equal to the dataclasses."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ckh.training import Labels, RankObjective


class BenchKeywords(TypedDict, total=False):
    """Fields of `Settings`, `BenchLimits` and `DeviceOptions` that are no arguments of `ckh.bench` themselves."""

    op: str
    variant: str
    model: str | None
    plan: str | None
    active: bool
    today: str | None
    rule_set: str
    registry: str | None
    filter: str | None
    split_k: tuple[int, ...]
    ndim: int | None
    dtype: str
    pad_channels: bool | None
    seed: int
    samples: int
    max_scratch: int | None
    cold: bool
    rotating: int
    budget_s: float | None
    timeout_s: float
    jobs: int | None
    compile_timeout_s: float
    no_peak_check: bool
    arch: str | None
    hipcc: str | None
    ck_include: str | None
    gpus: tuple[int, ...] | None
    verify_on: str | None


class TrainKeywords(TypedDict, total=False):
    """Fields of `TrainOptions` and `TreeParams` that are no arguments of `ckh.train` themselves."""

    rank: RankObjective | str
    labels: Labels | str
    folds: int
    early_stopping: int
    seed: int
    jobs: int
    prior: float
    n_estimators: int
    learning_rate: float
    num_leaves: int
    max_depth: int
    min_child_samples: int
    subsample: float
    subsample_freq: int
    colsample_bytree: float
    reg_alpha: float
    reg_lambda: float
    path_smooth: float

"""How `aiter_gemm` models are trained, as data: `benchmarks/aiter_folds.py` judges it, `ckh train` takes it."""

from __future__ import annotations

from ckh.training import Labels, RankObjective, TrainOptions, TreeParams

RECIPE = TrainOptions(
    targets=(),
    rank=RankObjective.LAMBDARANK,
    labels=Labels.WINNERS,
    folds=0,
    seed=1,
    params=TreeParams(
        n_estimators=150,
        learning_rate=0.1,
        num_leaves=63,
        max_depth=-1,
        min_child_samples=20,
        subsample=1.0,
        subsample_freq=0,
        colsample_bytree=0.5,
        reg_alpha=0.0,
        reg_lambda=1.0,
    ),
)

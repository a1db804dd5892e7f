"""How `aiter_moe` models are trained, as data: `benchmarks/aiter_moe_folds.py` judges it, `ckh train` takes it."""

from __future__ import annotations

from ckh.training import TFLOPS, RankObjective, TrainOptions, TreeParams

RECIPE = TrainOptions(
    targets=(TFLOPS,),
    rank=RankObjective.LAMBDARANK,
    folds=0,
    seed=1,
    params=TreeParams(
        n_estimators=300,
        learning_rate=0.05,
        num_leaves=15,
        max_depth=-1,
        min_child_samples=10,
        subsample=1.0,
        subsample_freq=0,
        colsample_bytree=0.5,
        reg_alpha=0.0,
        reg_lambda=1.0,
    ),
)

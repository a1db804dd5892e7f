"""How good answers are for MIOpen's solvers by the model of another GPU; `benchmarks/transfer.py` prints these figures.

Solvers were chosen among those that the find databases list, the four fastest of a problem.
"""

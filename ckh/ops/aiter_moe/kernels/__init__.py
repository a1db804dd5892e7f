"""AITER's kernels of mixtures of experts: what its tuners try, and what an installed AITER builds."""

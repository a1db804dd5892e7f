"""AITER's kernels of matrix products: what its tuners try, and what an installed AITER builds."""

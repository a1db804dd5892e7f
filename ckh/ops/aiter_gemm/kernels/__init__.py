"""AITER's kernels of matrix products: kernels that its tuners try, and kernels that an installed AITER builds."""

"""AITER's kernels of mixtures of experts: kernels that its tuners try, and kernels that an installed AITER builds."""

"""`aiter_moe`: the two kernels for the two matrix products of a mixture of experts in AITER."""

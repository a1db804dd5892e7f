"""`aiter_moe`: which two kernels AITER should run for the two matrix products of a mixture of experts."""

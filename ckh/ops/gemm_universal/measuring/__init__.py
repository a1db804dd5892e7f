"""How kernels of matrix products are computed, built and measured."""

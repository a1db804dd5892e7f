"""Search spaces of kernels for a problem: all legal kernels, far beyond the candidate pool."""

from ckh.search.kernels.space import KernelSpace, kernel_space

__all__ = ["KernelSpace", "kernel_space"]

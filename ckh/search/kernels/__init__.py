"""Spaces of kernels for a problem: everything that can be built and applies to it, far beyond the candidate pool."""

from ckh.search.kernels.space import KernelSpace, kernel_space

__all__ = ["KernelSpace", "kernel_space"]

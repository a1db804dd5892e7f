"""Compilation of kernels, and the cache of compiled kernels."""

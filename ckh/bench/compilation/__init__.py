"""Compiling kernels, and the cache of compiled ones."""

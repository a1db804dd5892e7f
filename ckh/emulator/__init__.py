"""Emulated AMD GPU: executes compiled kernels on the CPU, to verify their results."""

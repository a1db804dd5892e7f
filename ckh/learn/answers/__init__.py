"""Answers: the kernels of a problem in order, and why."""

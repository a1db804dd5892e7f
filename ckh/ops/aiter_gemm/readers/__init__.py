"""Readers of AITER's tuned tables of matrix products."""

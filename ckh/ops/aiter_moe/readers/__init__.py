"""Readers of AITER's tuned tables of mixtures of experts."""

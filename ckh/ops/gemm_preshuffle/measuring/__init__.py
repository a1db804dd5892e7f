"""Measuring matrix products with a shuffled B."""

"""Readers of measurement files specific to matrix products."""

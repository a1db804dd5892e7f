"""Measuring grouped matrix products."""

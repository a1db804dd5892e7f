"""Measuring matrix products whose blocks share tiles."""

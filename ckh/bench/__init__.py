"""Bench: code generation, compilation, the isolated worker, its supervisor, timing and reference results."""

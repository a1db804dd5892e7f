"""Chosen kernels that are run on arrays, and choices that are measured (`ckh.run`, `ckh predict --probe`)."""

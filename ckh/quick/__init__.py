"""Quick answers: `ckh predict` from a prepared file and C, without NumPy, Typer or the model itself."""

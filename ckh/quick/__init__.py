"""Quick answers: `ckh predict` from prepared files and C, without NumPy, Typer or the model itself."""

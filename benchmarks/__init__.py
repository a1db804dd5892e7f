"""Scripts that reproduce the figures of docs/results.md."""

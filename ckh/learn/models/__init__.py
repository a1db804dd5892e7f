"""Model directories: reading them, and what a loaded model can do."""

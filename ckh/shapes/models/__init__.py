"""Models by their configuration: families, rules of their layers, ready ones."""

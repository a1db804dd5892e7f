"""Shapes of models from their configuration: families, layer rules, ready models."""

"""Evaluation of models by their answers."""

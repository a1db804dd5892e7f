"""Answers: the ranked kernels of a problem, with explanations."""

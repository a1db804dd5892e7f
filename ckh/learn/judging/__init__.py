"""Judging models by the answers that they give."""

"""Ranking: evaluating forests without LightGBM, which stays the reference they are tested against."""

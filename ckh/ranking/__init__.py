"""Ranking: evaluation of forests without LightGBM, against which it is tested."""

"""Measuring batched matrix products: computation, emission, trials."""

"""Kernels of batched matrix products: rules and pools."""

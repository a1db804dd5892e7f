"""Measuring matrix products with further tensors in their epilogue."""
